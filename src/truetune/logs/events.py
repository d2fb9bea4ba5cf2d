"""TensorBoard event files: TFRecord frames around Event messages, of which only scalar summaries are read.

Read here and not by the `tensorboard` package, which brings grpc, protobuf and a web server along: the part that is
needed is a frame (length, checksum, bytes, checksum) and six fields. Sources: tensorflow/core/util/event.proto,
framework/summary.proto and lib/io/record_writer.h of tensorflow/tensorflow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from truetune.logs.builder import Builder
from truetune.logs.wire import Value, WireError, data, fields, real, signed
from truetune.parsing.bounded_files import read_bounded
from truetune.parsing.limits import BINARY_LOG, InputLimitError

HEADER = struct.Struct("<QI")
MAX_RECORD = 1 << 28
"""A longer frame is taken for damage."""
SCALAR_BYTES = 4_096
"""Frames up to this size are checked; longer ones hold no scalar (histograms, texts, images)."""
FLOAT, DOUBLE = 1, 2


def read_events(path: Path, into: Builder) -> None:
    """All scalars of one file. Damage ends the file, and is noted."""
    raw = read_bounded(path, BINARY_LOG)
    frames = list(islice(_frames(raw, path.name, into), BINARY_LOG.max_values + 1))
    if len(frames) > BINARY_LOG.max_values:
        raise InputLimitError(f"more than {BINARY_LOG.max_values:,} records")
    good = _intact(raw, frames)
    if not good.all():
        into.skipped[f"{path.name}: records with a wrong checksum"] += int((~good).sum())
    for (start, size), intact in zip(frames, good.tolist(), strict=True):
        if intact and size <= SCALAR_BYTES:
            try:
                _event(raw[start : start + size], into)
            except WireError as error:
                into.note(f"{path.name}: records that can't be read ({error})")


def _frames(raw: bytes, name: str, into: Builder) -> Iterator[tuple[int, int]]:
    """Start and length of each record's bytes."""
    at = 0
    while at < len(raw):
        if at + 16 > len(raw):
            break
        size, check = HEADER.unpack_from(raw, at)
        if size > MAX_RECORD or check != masked(
            crc32c(np.frombuffer(raw, np.uint8, 8, at)[None])[0]
        ):
            into.note(f"{name}: damaged after {at:,} of {len(raw):,} bytes; the rest is left out")
            return
        if at + 16 + size > len(raw):
            break
        yield at + 12, size
        at += 16 + size
    if at < len(raw):
        into.note(f"{name}: ends within a record, {len(raw) - at:,} bytes are left out")


def _intact(raw: bytes, frames: list[tuple[int, int]]) -> NDArray[np.bool_]:
    """(frames,) does the checksum fit? Records of one length are checked together; long ones are not."""
    good = np.ones(len(frames), dtype=bool)
    sizes = np.array([size for _, size in frames], dtype=np.int64)
    starts = np.array([start for start, _ in frames], dtype=np.int64)
    whole = np.frombuffer(raw, np.uint8)
    for size in np.unique(sizes[sizes <= SCALAR_BYTES]).tolist():
        (mine,) = np.nonzero(sizes == size)
        for some in np.array_split(mine, 1 + mine.size * (size + 4) // (1 << 24)):
            block = whole[starts[some][:, None] + np.arange(size + 4)]
            written = block[:, size:].copy().view("<u4")[:, 0]
            good[some] = written == [masked(c) for c in crc32c(block[:, :size])]
    return good


def _table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    return table


TABLE = _table()


def crc32c(block: NDArray[np.uint8]) -> list[int]:
    """(records, bytes) -> the Castagnoli checksum of each record (RFC 3720, appendix B.4)."""
    crc = np.full(block.shape[0], 0xFFFFFFFF, dtype=np.uint32)
    for column in range(block.shape[1]):
        crc = TABLE[(crc ^ block[:, column]) & 0xFF] ^ (crc >> 8)
    made: list[int] = (crc ^ np.uint32(0xFFFFFFFF)).tolist()
    return made


def masked(crc: int) -> int:
    """A checksum as TFRecord stores it."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _event(raw: bytes, into: Builder) -> None:
    step, time, values = 0, 0.0, []
    for number, value in fields(raw):
        if number == 1:
            time = real(value)
        elif number == 2:
            step = signed(value)
        elif number == 5:
            values += [data(v) for n, v in fields(data(value)) if n == 1]
    found = False
    for one in values:
        tag, scalar = _scalar(one)
        if tag and scalar is not None:
            into.point(tag, step, scalar)
            into.records += 1
            found = True
    if found and time:
        into.point("wall_time", step, time)


def _scalar(value: bytes) -> tuple[str, float | None]:
    tag, scalar = "", None
    for number, content in fields(value):
        if number == 1:
            tag = data(content).decode("utf-8", "replace")
        elif number == 2:
            scalar = real(content)
        elif number == 8:
            scalar = _tensor(data(content))
    return tag, scalar


def _tensor(raw: bytes) -> float | None:
    """The one number of a tensor; None where it holds another kind or several."""
    kind: Value = 0
    found: list[float] = []
    for number, value in fields(raw):
        if number == 1:
            kind = value
        elif number in (4, 5, 6) and kind in (FLOAT, DOUBLE):
            found += np.frombuffer(data(value), "<f8" if kind == DOUBLE else "<f4").tolist()
    return found[0] if len(found) == 1 else None
