"""Freed memory stays with the process (switch `keep_memory`).

The C library returns a large block to the system as soon as it is freed, and requests it again a moment later. The
activations of one update are such blocks: the system then clears every page again, at one page fault each.
"""

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # names and numbers of mallopt(3)
LARGEST_INT = 2**31 - 1
LARGEST_BLOCK = 2**30  # bytes; larger ones are rare enough to be allocated each time
LARGEST_BLOCK_OF_OLD_LIBRARIES = 2**25  # they reject a larger threshold


def has_mallopt() -> bool:
    return platform.libc_ver()[0] == "glibc"


def keep_freed_memory() -> bool:
    """Process-wide and permanent; returns whether the C library accepted it."""
    libc = ctypes.CDLL(None)
    blocks = any(libc.mallopt(M_MMAP_THRESHOLD, size) for size in (LARGEST_BLOCK, LARGEST_BLOCK_OF_OLD_LIBRARIES))
    return blocks and bool(libc.mallopt(M_TRIM_THRESHOLD, LARGEST_INT))
