"""Reads the header of a safetensors file, and compares all that it says with the size of the file.

Nothing in it is trusted: lengths, shapes and offsets are compared with each other and with the size of the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from truetune.parsing.input_limits import TENSOR_HEADER
from truetune.parsing.parse_json_within_limits import parse_json

BITS_PER_ITEM = {
    **{"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8},
    **{"F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8},
    **{"U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32},
    **{"U64": 64, "I64": 64, "F64": 64, "C64": 64},
}
"""Bits of one item, by dtype"""
MAX_HEADER_BYTES = TENSOR_HEADER.max_bytes
"""Bytes; the format allows 100 MB, the longest that models have is some MB."""
MAX_DIMENSIONS = 16
"""Numbers in a tensor's entry at most, its dimensions and two offsets: a header may come from
anybody, and they are multiplied"""
LFS_POINTER = b"version https://git-lfs"


class BrokenFile(ValueError):
    """Raised where a file is not what its name says; the message has no file name in it."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a file: its name, dtype and shape, and where it is stored."""

    name: str
    dtype: str
    """As the header spells it: `BF16`"""
    shape: tuple[int, ...]
    file: Path
    start: int
    """First byte in the file"""
    size: int
    """Bytes"""
    whole: bool = True
    """All of its bytes are in the file."""

    @property
    def value_count(self) -> int:
        """How many values it has."""
        return math.prod(self.shape)


class SafetensorsHeader(NamedTuple):
    """The tensors that a safetensors file says it holds, and the faults of its layout."""

    tensors: tuple[StoredTensor, ...]
    """By offset"""
    metadata: dict[str, str]
    faults: tuple[str, ...]
    """What does not fit, though the header could be read"""


def read_safetensors_header(path: Path) -> SafetensorsHeader:
    """The header of a file. Raises BrokenFile or OSError."""
    total = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        length = int.from_bytes(first, "little")
        # A clone without Git LFS holds a small text in the place of each weight file: the commonest broken one.
        if first == LFS_POINTER[:8]:
            raise BrokenFile("a Git LFS pointer, not the file itself; run `git lfs pull`")
        if len(first) < 8:
            raise BrokenFile(f"{total} bytes, too short for a header")
        # Before it is read: a broken length would ask for exabytes of memory.
        if length > min(total - 8, MAX_HEADER_BYTES):
            raise BrokenFile(f"its header should have {length:,} bytes, the file has {total:,}")
        entries = _parse_header(file.read(length))
    metadata = entries.pop("__metadata__", None)
    begin = 8 + length
    tensors = sorted(
        (_parse_tensor_entry(path, n, e, begin, total) for n, e in entries.items()),
        key=lambda t: (t.start, t.size),
    )
    return SafetensorsHeader(
        tuple(tensors),
        {str(k): str(v) for k, v in metadata.items()} if isinstance(metadata, dict) else {},
        tuple(_find_layout_faults(tensors, begin, total)),
    )


def _parse_header(body: bytes) -> dict[str, Any]:
    """The header's JSON. Raises BrokenFile."""
    # Two tensors of one name, or offsets as floats, are how a header is made to lie.
    try:
        value = parse_json(body, TENSOR_HEADER, unique_keys=True, exact_integers=True)
    except ValueError as error:
        raise BrokenFile(f"its header is not JSON that can be read ({error})") from None
    if not isinstance(value, dict):
        raise BrokenFile("its header is not a JSON object")
    return value


def _parse_tensor_entry(path: Path, name: str, entry: Any, begin: int, total: int) -> StoredTensor:
    """One tensor of the header. Raises BrokenFile where its dtype, shape and offsets contradict
    each other.
    """
    try:
        dtype, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise BrokenFile(f"its header lacks the dtype, shape or offsets of {name[:80]!r}") from None
    sizes = [*shape, start, end] if isinstance(shape, list) else [-1]
    if (
        not isinstance(dtype, str)
        or len(sizes) > MAX_DIMENSIONS
        or not all(type(n) is int and n >= 0 for n in sizes)
    ):
        raise BrokenFile(
            f"its header gives {name[:80]!r} the shape {str(shape)[:80]} and offsets {start}, {end}"
        )
    # A dtype that is newer than this table has no known size, and is not compared.
    size = end - start
    bits = math.prod(shape) * BITS_PER_ITEM.get(dtype, 0)
    if size < 0 or (dtype in BITS_PER_ITEM and bits != 8 * size):
        raise BrokenFile(f"{name[:80]!r} is {dtype} {shape}, which does not fit {size:,} bytes")
    return StoredTensor(name, dtype, tuple(shape), path, begin + start, size, begin + end <= total)


def _find_layout_faults(tensors: list[StoredTensor], begin: int, total: int) -> Iterator[str]:
    """Faults of the layout: a file that is cut off, tensors that overlap, bytes that no tensor has."""
    cut = [tensor for tensor in tensors if not tensor.whole]
    if cut:
        end = max(tensor.start + tensor.size for tensor in cut)
        yield (
            f"cut off: it should have {end:,} bytes and has {total:,}; {len(cut):,} of"
            f" {len(tensors):,} tensors miss"
        )
    # By offset: a tensor that begins before the one before it ends shares bytes with it.
    place = begin
    for tensor in tensors:
        if tensor.size and tensor.start < place:
            yield f"the bytes of {tensor.name[:80]!r} overlap with those of another tensor"
            return
        place = max(place, tensor.start + tensor.size)
    if place < total and not cut:
        yield f"{total - place:,} bytes at its end belong to no tensor"
