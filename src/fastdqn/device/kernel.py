"""How Numba compiles a loop: at its first call, cached on disk, run without the GIL.

Importing numba takes half a second, so only kernel files import this, and those are imported where they are used.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Computes the same numbers as Python and NumPy."""
    return cast(Function, njit(cache=True, nogil=True)(function))


def loose_kernel(function: Function) -> Function:
    """Sums in any order, and x / 0 is infinity, not an exception: otherwise float loops would not be vectorised."""
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})(function))
