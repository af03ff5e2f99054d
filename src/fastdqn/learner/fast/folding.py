"""A convolution with a large stride over few channels, as one over blocks of pixels (switch `folded_conv`).

    8x8 kernels, stride 4, 4 channels of 84x84   =   2x2 kernels, stride 1, 64 channels of 21x21

A block of 4x4 pixels becomes the channels of one pixel. The products and sums are the same, and a GPU's tensor cores, or a
CPU's bfloat16 instructions, have 64 channels to work on instead of 4.
"""

import torch
from torch import Tensor, nn

MOST_CHANNELS = 16  # with more the convolution is efficient already


class Folding:
    """For one convolution; `side` is the stride, and so the height and width of a block."""

    def __init__(self, side: int) -> None:
        self.side = side

    def image(self, state: Tensor, dtype: torch.dtype) -> Tensor:
        """(B, C, H, W) -> (B, side * side * C, H / side, W / side), channels last. Pixels beyond the last whole block are
        left out: the convolution does not reach them."""
        side = self.side
        height, width = (length // side * side for length in state.shape[2:])
        blocks = self.in_blocks(state[:, :, :height, :width])
        folded = torch.empty(blocks.shape, dtype=dtype, device=state.device).copy_(blocks)
        return folded.flatten(3).permute(0, 3, 1, 2)

    def kernel_shape(self, kernel: Tensor) -> tuple[int, ...]:
        outputs, channels, height, width = kernel.shape
        return outputs, channels * self.side**2, height // self.side, width // self.side

    def in_blocks(self, pixels: Tensor) -> Tensor:
        """A view (N, H / side, W / side, side, side, C) of images or kernels (N, C, H, W)."""
        rows = split(split(pixels, 3, -1, self.side), 2, -1, self.side)
        return rows.permute(0, 2, 4, 3, 5, 1)

    def as_blocks(self, folded: Tensor) -> Tensor:
        """The same view of folded kernels (N, side * side * C, H / side, W / side)."""
        return split(folded.permute(0, 2, 3, 1), 3, self.side, self.side, -1)


def split(tensor: Tensor, dim: int, *sizes: int) -> Tensor:
    """A view with one dimension cut into several."""
    view: Tensor = torch.unflatten(tensor, dim, sizes)
    return view


def folding_of(layer: nn.Module) -> Folding | None:
    """The folding of this layer, or None if it cannot be folded."""
    if type(layer) is not nn.Conv2d or layer.in_channels > MOST_CHANNELS or layer.groups != 1:
        return None
    side = layer.stride[0]
    fits = all(stride == side for stride in layer.stride) and all(length % side == 0 for length in layer.kernel_size)
    plain = tuple(layer.padding) == (0, 0) and tuple(layer.dilation) == (1, 1)
    return Folding(side) if side > 1 and fits and plain else None
