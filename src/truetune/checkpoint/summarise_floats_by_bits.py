"""Summarises floating-point values by their bits (NaN, infinite, zero), without converting
anything.

numpy has neither bfloat16 nor 8-bit floats, and converting gigabytes would take most of a scan's time. As integers, all
values that are NaN or infinite lie above one number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class FloatFormat(NamedTuple):
    """One floating-point format, stored in whole bytes."""

    signed: str
    unsigned: str
    """numpy types of the same width"""
    special: int
    """The lowest bits, without the sign, that are NaN or infinite"""
    infinite: int | None
    """The bits of infinity; None where there is none"""


FLOAT_FORMATS = {
    "F64": FloatFormat("<i8", "<u8", 0x7FF0000000000000, 0x7FF0000000000000),
    "F32": FloatFormat("<i4", "<u4", 0x7F800000, 0x7F800000),
    "F16": FloatFormat("<i2", "<u2", 0x7C00, 0x7C00),
    "BF16": FloatFormat("<i2", "<u2", 0x7F80, 0x7F80),
    "F8_E5M2": FloatFormat("<i1", "<u1", 0x7C, 0x7C),
    # OCP's E4M3 has no infinity, and a single NaN: all bits set.
    "F8_E4M3": FloatFormat("<i1", "<u1", 0x7F, None),
}
NUMPY_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""The formats that become float32 here, by the numpy type that they are read as"""


class BlockSummary(NamedTuple):
    """What a block of values holds: how many NaN and infinite ones, zeros, the least and the
    greatest.
    """

    nan: int
    inf: int
    low: int
    high: int
    """Lowest and highest bits as an unsigned number; equal where all values are"""
    zero: bool
    """All are 0 or -0"""


def summarise_block(data: memoryview, kind: FloatFormat) -> BlockSummary:
    """Summarise the values in `data`; three passes that do not copy."""
    unsigned = np.frombuffer(data, kind.unsigned)
    signed = unsigned.view(kind.signed)
    sign = 1 << (8 * unsigned.itemsize - 1)
    # As signed integers negative floats are negative: their largest is the largest positive float.
    high, positive = int(unsigned.max()), int(signed.max())
    nan = inf = 0
    # The third pass, which copies, only where a special value may be there.
    if positive >= kind.special or high >= sign + kind.special:
        magnitude = unsigned & np.array(sign - 1, unsigned.dtype)
        special = magnitude >= kind.special
        inf = 0 if kind.infinite is None else int((magnitude == kind.infinite).sum())
        nan = int(special.sum()) - inf
    return BlockSummary(nan, inf, int(unsigned.min()), high, positive <= 0 and high <= sign)


def to_float32(values: NDArray[Any], dtype: str) -> NDArray[np.float32]:
    """Values that were read as PLAIN[dtype], converted to float32."""
    values = np.asarray(values)
    # bfloat16 is the upper half of a float32.
    if dtype == "BF16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    # F64 beyond float32 becomes infinity, which the comparison shows as such.
    with np.errstate(over="ignore"):
        return values.astype(np.float32)
