"""Parses protocol buffer messages into numbered fields, without a schema, as far as logs need them.

The two formats that need it (TensorBoard's events and W&B's offline runs) use about a dozen fields. The `protobuf`
package would be a dependency with generated classes, whose versions conflict with those of users' trainers. The price
is that callers know field numbers, and check a field's kind themselves (`varint_as_signed_int`,
`field_as_bytes`, `field_as_float`).

Source: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

WireValue = int | bytes
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types; 3 and 4 (groups) are deprecated, and neither format has them"""


class WireError(ValueError):
    """These bytes are no message."""


def parse_fields(message: bytes) -> Iterator[tuple[int, WireValue]]:
    """(number, value) of each field in order: numbers of variable length as int, all others as their bytes.

    Raises WireError.
    """
    at, end = 0, len(message)
    while at < end:
        key, at = parse_varint_at(message, at)
        kind = key & 7
        if kind == VARINT:
            value, at = parse_varint_at(message, at)
            yield key >> 3, value
            continue
        if kind == BYTES:
            size, at = parse_varint_at(message, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise WireError(f"a field of the unknown kind {kind}")
        if at + size > end:
            raise WireError("a field is longer than its message")
        yield key >> 3, message[at : at + size]
        at += size


def parse_varint_at(message: bytes, at: int) -> tuple[int, int]:
    """The number of variable length at this position, and the position after it. Raises WireError."""
    value = shift = 0
    # 64 bits take ten groups of 7: more is damage, and would build a number as long as the file
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise WireError("a number that does not end")


def varint_as_signed_int(value: WireValue) -> int:
    """A field's varint as int64. Raises WireError."""
    if not isinstance(value, int):
        raise WireError("bytes where a number was expected")
    # negative numbers are written in two's complement of 64 bits
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def field_as_bytes(value: WireValue) -> bytes:
    """A field's bytes. Raises WireError."""
    if isinstance(value, int):
        raise WireError("a number where bytes were expected")
    return value


def field_as_float(value: WireValue) -> float:
    """A field's float or double. Raises WireError."""
    raw = field_as_bytes(value)
    if len(raw) not in (4, 8):
        raise WireError(f"{len(raw)} bytes where a float was expected")
    number: float = struct.unpack("<d" if len(raw) == 8 else "<f", raw)[0]
    return number
