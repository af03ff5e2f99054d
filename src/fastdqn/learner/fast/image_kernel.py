"""The compiled loop of images.py."""

import numpy as np

from fastdqn.device.kernel import kernel


@kernel
def bytes_to_channels_last(images: np.ndarray, out: np.ndarray) -> None:
    """(B, C, H, W) of bytes -> (B, H, W * C) of bfloat16, as its bits: the upper half of a float32, exact for a byte."""
    size, channels, height, width = images.shape
    row = np.empty(width * channels, np.float32)
    bits = row.view(np.uint32)
    for b in range(size):
        for y in range(height):
            if channels == 4:  # unrolled, so that four bytes are one step
                for x in range(width):
                    row[4 * x] = images[b, 0, y, x]
                    row[4 * x + 1] = images[b, 1, y, x]
                    row[4 * x + 2] = images[b, 2, y, x]
                    row[4 * x + 3] = images[b, 3, y, x]
            else:
                for c in range(channels):
                    for x in range(width):
                        row[x * channels + c] = images[b, c, y, x]
            for i in range(width * channels):
                out[b, y, i] = np.uint16(bits[i] >> np.uint32(16))
