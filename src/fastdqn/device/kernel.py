"""How a loop is compiled: at its first call, kept on disk, run without the interpreter's lock.

Importing numba takes half a second, so only files of kernels import this, and those are imported where they are used.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Every number as Python and NumPy would have it."""
    return cast(Function, njit(cache=True, nogil=True)(function))


def loose_kernel(function: Function) -> Function:
    """Sums in any order, and x / 0 is infinity and no exception: what keeps a loop over floats from being vectorised."""
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})(function))
