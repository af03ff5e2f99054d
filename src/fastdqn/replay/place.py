"""Where the ring's arrays are stored: in memory, or in a file (setting `replay.place`).

The file has no name, so nothing is left behind however a run ends, and its full size is allocated when it is created.
"""

import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fastdqn.errors import UserError

Allocate = Callable[[tuple[int, ...], Any], np.ndarray]  # (shape, dtype) -> an array of zeros


def in_memory(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.zeros(shape, dtype)


def in_file(folder: Path) -> Allocate:
    """On the disk of this folder. The operating system caches what fits in memory."""

    def allocate(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        size = max(1, int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)
        with tempfile.TemporaryFile(dir=folder, prefix="fastdqn-") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as fault:
                raise UserError(
                    f"There is no room for a replay of {size / 1e9:.1f} GB in {folder}: {fault.strerror}."
                ) from None
            return np.ndarray(shape, dtype, buffer=mmap.mmap(file.fileno(), size))

    return allocate
