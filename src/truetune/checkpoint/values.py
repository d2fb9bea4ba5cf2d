"""Values: NaN, infinity, zeros and constants in the tensors, read in blocks with bounded memory.

All bytes are read up to a budget. Beyond it each tensor is sampled: blocks spread evenly, the first and the last among
them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import RawIOBase

from truetune.checkpoint.bits import FLOATS, Float, Seen, look
from truetune.checkpoint.safetensors import Tensor

BUDGET = 2 << 30
"""Bytes that are read of one checkpoint"""
BLOCK = 1 << 20
THREADS = min(4, os.cpu_count() or 1)

Progress = Callable[[int], None]
"""Called with the bytes that were read since the last call"""


@dataclass(frozen=True, slots=True)
class Values:
    """What is in one tensor."""

    seen: int
    """Values that were looked at"""
    nan: int
    inf: int
    zero: bool
    """All that were seen are 0"""
    constant: bool
    """All that were seen are equal"""


def scan(tensors: Iterable[Tensor], *, budget: int = BUDGET) -> dict[str, Values]:
    """The values of all floating-point tensors that are whole, by name."""
    wanted = [t for t in tensors if t.whole and t.size and t.dtype in FLOATS]
    share = min(1.0, budget / max(1, sum(t.size for t in wanted)))
    parts = [wanted[i::THREADS] for i in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(lambda part: list(_scan(part, share)), parts)
        return {name: values for part in found for name, values in part}


def blocks(size: int, share: float, unit: int = BLOCK) -> Sequence[tuple[int, int]]:
    """(start, length) of the blocks to read of `size` bytes, so that about `share` of them is read, at least one."""
    count = -(-size // unit)
    wanted = count if share >= 1 else max(1, round(count * share))
    if wanted >= count:
        return [(start, min(unit, size - start)) for start in range(0, size, unit)]
    picked = sorted({i * (count - 1) // max(1, wanted - 1) for i in range(wanted)})
    return [(i * unit, min(unit, size - i * unit)) for i in picked]


def _scan(tensors: Sequence[Tensor], share: float) -> Iterator[tuple[str, Values]]:
    buffer = bytearray(BLOCK)
    open_file: RawIOBase | None = None
    path = None
    try:
        for tensor in sorted(tensors, key=lambda t: (str(t.file), t.start)):
            if tensor.file != path:
                if open_file is not None:
                    open_file.close()
                open_file, path = tensor.file.open("rb", buffering=0), tensor.file
            assert open_file is not None
            kind = FLOATS[tensor.dtype]
            parts = [
                _block(open_file, tensor.start + at, buffer, n, kind)
                for at, n in blocks(tensor.size, share)
            ]
            yield tensor.name, _whole(parts, tensor, share)
    finally:
        if open_file is not None:
            open_file.close()


def _block(file: RawIOBase, start: int, buffer: bytearray, length: int, kind: Float) -> Seen:
    view = memoryview(buffer)[:length]
    file.seek(start)
    done = 0
    while done < length:
        got = file.readinto(view[done:])
        if not got:
            raise OSError("the file became shorter while it was read")
        done += got
    return look(view, kind)


def _whole(parts: Sequence[Seen], tensor: Tensor, share: float) -> Values:
    width = tensor.size // tensor.items
    return Values(
        seen=sum(n for _, n in blocks(tensor.size, share)) // width,
        nan=sum(part.nan for part in parts),
        inf=sum(part.inf for part in parts),
        zero=all(part.zero for part in parts),
        constant=min(part.low for part in parts) == max(part.high for part in parts),
    )
