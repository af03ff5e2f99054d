"""Freed memory stays with the process (switch `keep_memory`).

The C library gives a large block back to the system as soon as it is freed, and asks for it again a moment later. The
activations of one update are such blocks: the system then clears every page of them anew, at a page fault each.
"""

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # names and numbers of mallopt(3)
LARGEST_INT = 2**31 - 1
LARGEST_BLOCK = 2**30  # bytes; larger ones are rare enough to be asked for each time
LARGEST_BLOCK_OF_OLD_LIBRARIES = 2**25  # they refuse a threshold above it


def has_mallopt() -> bool:
    return platform.libc_ver()[0] == "glibc"


def keep_freed_memory() -> bool:
    """For the whole process, and for good; whether the C library agreed."""
    libc = ctypes.CDLL(None)
    blocks = any(libc.mallopt(M_MMAP_THRESHOLD, size) for size in (LARGEST_BLOCK, LARGEST_BLOCK_OF_OLD_LIBRARIES))
    return blocks and bool(libc.mallopt(M_TRIM_THRESHOLD, LARGEST_INT))
