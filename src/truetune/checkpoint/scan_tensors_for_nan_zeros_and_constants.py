"""Scans the tensors of a checkpoint for NaN, infinity, zeros and constants, in blocks with bounded
memory.

All bytes are read up to a budget. Beyond it each tensor is sampled: blocks spread evenly, the first and the last among
them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import RawIOBase

from truetune.checkpoint.read_and_check_safetensors_header import StoredTensor
from truetune.checkpoint.summarise_floats_by_bits import (
    FLOAT_FORMATS,
    BlockSummary,
    FloatFormat,
    summarise_block,
)

# Chosen, not measured: seconds on a fast disk; what breaks values breaks them in many tensors, so samples show it.
MAX_SCANNED_BYTES = 2 << 30
"""Bytes that are read of one checkpoint"""
BLOCK_BYTES = 1 << 20
"""Bytes that are read at once; each thread holds one block, and smaller blocks cost more calls"""
# Chosen, not measured: numpy's passes release the lock; beyond four the disk is what waits.
MAX_THREADS = min(4, os.cpu_count() or 1)

Progress = Callable[[int], None]
"""Called with the bytes that were read since the last call"""


@dataclass(frozen=True, slots=True)
class TensorValues:
    """Counts of NaN and infinity in one tensor, and whether it is all zero or constant."""

    seen: int
    """Values that were looked at"""
    nan: int
    inf: int
    zero: bool
    """All that were seen are 0"""
    constant: bool
    """All that were seen are equal"""


def scan_tensor_values(
    tensors: Iterable[StoredTensor], *, budget: int = MAX_SCANNED_BYTES
) -> dict[str, TensorValues]:
    """Scan all floating-point tensors that are whole; by name."""
    wanted = [t for t in tensors if t.whole and t.size and t.dtype in FLOAT_FORMATS]
    share = min(1.0, budget / max(1, sum(t.size for t in wanted)))
    parts = [wanted[i::MAX_THREADS] for i in range(MAX_THREADS)]
    with ThreadPoolExecutor(MAX_THREADS) as pool:
        results = pool.map(lambda part: list(_scan_in_file_order(part, share)), parts)
        return {name: values for part in results for name, values in part}


def choose_blocks(size: int, share: float, unit: int = BLOCK_BYTES) -> Sequence[tuple[int, int]]:
    """(start, length) of the blocks to read of `size` bytes, so that about `share` of them is read, at least one."""
    count = -(-size // unit)
    wanted = count if share >= 1 else max(1, round(count * share))
    if wanted >= count:
        return [(start, min(unit, size - start)) for start in range(0, size, unit)]
    # The first and the last are among them: files that were cut or padded differ there.
    picked = sorted({i * (count - 1) // max(1, wanted - 1) for i in range(wanted)})
    return [(i * unit, min(unit, size - i * unit)) for i in picked]


def _scan_in_file_order(
    tensors: Sequence[StoredTensor], share: float
) -> Iterator[tuple[str, TensorValues]]:
    """(name, values) of each tensor, in the order of the disk."""
    # One buffer a thread: memory stays at a few MiB for any model.
    buffer = bytearray(BLOCK_BYTES)
    open_file: RawIOBase | None = None
    path = None
    try:
        # In the order of the disk.
        for tensor in sorted(tensors, key=lambda t: (str(t.file), t.start)):
            if tensor.file != path:
                if open_file is not None:
                    open_file.close()
                open_file, path = tensor.file.open("rb", buffering=0), tensor.file
            assert open_file is not None
            kind = FLOAT_FORMATS[tensor.dtype]
            parts = [
                _read_and_summarise_block(open_file, tensor.start + at, buffer, n, kind)
                for at, n in choose_blocks(tensor.size, share)
            ]
            yield tensor.name, _combine_blocks(parts, tensor, share)
    finally:
        if open_file is not None:
            open_file.close()


def _read_and_summarise_block(
    file: RawIOBase, start: int, buffer: bytearray, length: int, kind: FloatFormat
) -> BlockSummary:
    """Read one block into the buffer, and summarise its values."""
    view = memoryview(buffer)[:length]
    file.seek(start)
    done = 0
    # An unbuffered read may return less than was asked for.
    while done < length:
        read_bytes = file.readinto(view[done:])
        if not read_bytes:
            raise OSError("the file became shorter while it was read")
        done += read_bytes
    return summarise_block(view, kind)


def _combine_blocks(
    parts: Sequence[BlockSummary], tensor: StoredTensor, share: float
) -> TensorValues:
    """The values of a tensor from the summaries of its blocks."""
    width = tensor.size // tensor.value_count
    return TensorValues(
        seen=sum(n for _, n in choose_blocks(tensor.size, share)) // width,
        nan=sum(part.nan for part in parts),
        inf=sum(part.inf for part in parts),
        zero=all(part.zero for part in parts),
        constant=min(part.low for part in parts) == max(part.high for part in parts),
    )
