"""Support for bfloat16 in compiled loops. Numba has no such dtype: it is a uint16 there, the upper half of a float32.

A loop that reads with `to_float32` and writes with `in_dtype_of` is compiled for float32 and for bfloat16. Numba's cache
checks the file of the loop only: after a change here, touch the files of the loops.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic, overload

from fastdqn.device.kernel import loose_kernel

HALF = np.uint32(0x7FFF)  # one less than half the range of the lower 16 bits
NOT_A_NUMBER = np.uint16(0x7FC0)


def _to_float32(typing: Any, number: Any) -> Any:

    def widen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = builder.shl(builder.zext(args[0], ir.IntType(32)), ir.Constant(ir.IntType(32), 16))
        return builder.bitcast(bits, ir.FloatType())

    def keep(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return args[0]

    return types.float32(number), widen if number == types.uint16 else keep


def _bits_of(typing: Any, number: Any) -> Any:
    def cast(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(32))

    return types.uint32(types.float32), cast


to_float32: Any = intrinsic(_to_float32)  # from float32 or bfloat16
bits_of: Any = intrinsic(_bits_of)


@loose_kernel
def to_bfloat16(number: float) -> np.uint16:
    """Rounds to nearest, ties to even, as torch does."""
    bits = bits_of(number)
    rounded = np.uint16((bits + HALF + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))
    return NOT_A_NUMBER if number != number else rounded


def in_dtype_of(example: Any, number: Any) -> Any:
    """The float32 `number` itself, or rounded to bfloat16 if `example` is bfloat16."""
    raise TypeError("for compiled loops")


@overload(in_dtype_of)
def _in_dtype_of(example: Any, number: Any) -> Callable[[Any, Any], Any]:
    def short(example: Any, number: Any) -> Any:
        return to_bfloat16(number)

    def same(example: Any, number: Any) -> Any:
        return number

    return short if example == types.uint16 else same
