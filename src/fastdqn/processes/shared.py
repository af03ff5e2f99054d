"""NumPy arrays in shared memory.

Created by one process and opened by the others through its open files, so the memory has no name and is freed with the
last process, however that ends. Docker's small /dev/shm is not used. Every page is reserved at creation: missing memory
raises an error then and does not end a run hours later.
"""

import contextlib
import mmap
import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fastdqn.errors import UserError

ALIGNMENT = 64  # bytes: no two fields share a cache line

Fields = Mapping[str, tuple[tuple[int, ...], Any]]  # name -> (shape, dtype)


class Address(NamedTuple):
    """How another process finds the arrays."""

    path: str
    fields: dict[str, tuple[tuple[int, ...], str]]


class Shared:
    """Arrays by name: `shared["beats"][3] += 1`. Initially zero."""

    def __init__(self, descriptor: int, address: Address) -> None:
        self.address = address
        self._descriptor = descriptor
        self._memory = mmap.mmap(descriptor, size_of(address.fields))
        self._arrays: dict[str, np.ndarray] = {}
        offset = 0
        for name, (shape, dtype) in address.fields.items():
            self._arrays[name] = np.ndarray(shape, dtype, buffer=self._memory, offset=offset)
            offset += _padded(shape, dtype)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    @property
    def nbytes(self) -> int:
        return len(self._memory)

    def close(self) -> None:
        """The memory is freed when the last process closes it."""
        self._arrays.clear()
        os.close(self._descriptor)
        with contextlib.suppress(BufferError):  # an array is still in use: the memory is freed with the last one
            self._memory.close()


def make_shared(fields: Fields, what: str) -> Shared:
    """`what` names it in the error message."""
    plain = {name: (tuple(shape), np.dtype(dtype).str) for name, (shape, dtype) in fields.items()}
    descriptor, path = _nameless_file()
    try:
        os.posix_fallocate(descriptor, 0, size_of(plain))
    except OSError as fault:
        os.close(descriptor)
        raise UserError(f"There is no room for {what} ({size_of(plain) / 1e6:,.1f} MB): {fault.strerror}.") from None
    return Shared(descriptor, Address(path, plain))


def open_shared(address: Address) -> Shared:
    """Opens it in another process, while its creator is alive."""
    return Shared(os.open(address.path, os.O_RDWR), address)


def _nameless_file() -> tuple[int, str]:
    if sys.platform != "linux":
        raise UserError("Roles in processes need Linux: use the runner inline here.")
    descriptor = os.memfd_create("fastdqn", os.MFD_CLOEXEC)
    return descriptor, f"/proc/{os.getpid()}/fd/{descriptor}"


def size_of(fields: Fields) -> int:
    """Size in bytes."""
    return max(ALIGNMENT, sum(_padded(shape, dtype) for shape, dtype in fields.values()))


def _padded(shape: tuple[int, ...], dtype: Any) -> int:
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT
