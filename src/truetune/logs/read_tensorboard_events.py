"""Reads the scalars in TensorBoard event files, without the `tensorboard` package.

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

from truetune.logs.parse_protobuf_fields import (
    WireError,
    WireValue,
    field_as_bytes,
    field_as_float,
    parse_fields,
    varint_as_signed_int,
)
from truetune.logs.run_log_builder import RunLogBuilder
from truetune.parsing.input_limits import BINARY_LOG, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit

FRAME_HEADER = struct.Struct("<QI")
MAX_RECORD_BYTES = 1 << 28
"""A longer frame is taken for damage. Chosen, not measured: logged images stay far below 256 MB"""
MAX_SCALAR_BYTES = 4_096
"""Frames up to this size are checked; longer ones hold no scalar (histograms, texts, images)."""
DT_FLOAT, DT_DOUBLE = 1, 2
"""Numbers of the two types of scalars in TensorFlow's `types.proto`"""


def read_event_file(path: Path, log_builder: RunLogBuilder) -> None:
    """Read all scalars of one event file into the builder. Damage ends the file, and is noted."""
    raw = read_bytes_within_limit(path, BINARY_LOG)
    # one more than allowed, so that a file of too many records is seen without a walk to its end
    frames = list(islice(_spans_of_records(raw, path.name, log_builder), BINARY_LOG.max_values + 1))
    if len(frames) > BINARY_LOG.max_values:
        raise InputLimitError(f"more than {BINARY_LOG.max_values:,} records")
    good = _checksums_fit(raw, frames)
    if not good.all():
        log_builder.skipped[f"{path.name}: records with a wrong checksum"] += int((~good).sum())
    for (start, size), intact in zip(frames, good.tolist(), strict=True):
        if intact and size <= MAX_SCALAR_BYTES:
            try:
                _add_event(raw[start : start + size], log_builder)
            except WireError as error:
                log_builder.note_skipped(f"{path.name}: records that can't be read ({error})")


def _spans_of_records(
    raw: bytes, name: str, log_builder: RunLogBuilder
) -> Iterator[tuple[int, int]]:
    """(start, length) of each record's bytes, up to the end or to a frame whose length does not fit
    its checksum.
    """
    at = 0
    while at < len(raw):
        # 8 bytes of length, 4 of its checksum, the record, 4 of its checksum. A run that is killed leaves a part of it.
        if at + 16 > len(raw):
            break
        size, check = FRAME_HEADER.unpack_from(raw, at)
        if size > MAX_RECORD_BYTES or check != mask_checksum(
            crc32c_checksums(np.frombuffer(raw, np.uint8, 8, at)[None])[0]
        ):
            log_builder.note_skipped(
                f"{name}: damaged after {at:,} of {len(raw):,} bytes; the rest is left out"
            )
            return
        if at + 16 + size > len(raw):
            break
        yield at + 12, size
        at += 16 + size
    if at < len(raw):
        log_builder.note_skipped(
            f"{name}: ends within a record, {len(raw) - at:,} bytes are left out"
        )


def _checksums_fit(raw: bytes, frames: list[tuple[int, int]]) -> NDArray[np.bool_]:
    """(frames,) True for each frame whose checksum fits. Records of one length are checked
    together; long ones are not.
    """
    # A checksum byte by byte in Python is too slow for a long log: records of one length are one matrix here, and the
    # checksum runs over its columns.
    good = np.ones(len(frames), dtype=bool)
    sizes = np.array([size for _, size in frames], dtype=np.int64)
    starts = np.array([start for start, _ in frames], dtype=np.int64)
    whole = np.frombuffer(raw, np.uint8)
    for size in np.unique(sizes[sizes <= MAX_SCALAR_BYTES]).tolist():
        (same_size,) = np.nonzero(sizes == size)
        # blocks of 16 MB: the index array of a block takes eight times as much
        for some in np.array_split(same_size, 1 + same_size.size * (size + 4) // (1 << 24)):
            block = whole[starts[some][:, None] + np.arange(size + 4)]
            written = block[:, size:].copy().view("<u4")[:, 0]
            good[some] = written == [mask_checksum(c) for c in crc32c_checksums(block[:, :size])]
    return good


def _crc32c_table() -> NDArray[np.uint32]:
    """(256,) the CRC-32C checksum of each byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    return table


CRC_TABLE = _crc32c_table()


def crc32c_checksums(block: NDArray[np.uint8]) -> list[int]:
    """(records, bytes) -> the Castagnoli checksum of each record (RFC 3720, appendix B.4)."""
    crc = np.full(block.shape[0], 0xFFFFFFFF, dtype=np.uint32)
    for column in range(block.shape[1]):
        crc = CRC_TABLE[(crc ^ block[:, column]) & 0xFF] ^ (crc >> 8)
    checksums: list[int] = (crc ^ np.uint32(0xFFFFFFFF)).tolist()
    return checksums


def mask_checksum(crc: int) -> int:
    """A checksum as TFRecord stores it: rotated by 15 bits, plus a constant, so that a record which holds a checksum of
    its own does not get a trivial one (LevelDB's log format)."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _add_event(raw: bytes, log_builder: RunLogBuilder) -> None:
    """Add the scalars of one Event message, and its time as `wall_time`."""
    step, time, values = 0, 0.0, []
    for number, value in parse_fields(raw):
        if number == 1:
            time = field_as_float(value)
        elif number == 2:
            step = varint_as_signed_int(value)
        elif number == 5:
            values += [field_as_bytes(v) for n, v in parse_fields(field_as_bytes(value)) if n == 1]
    has_scalar = False
    for summary in values:
        tag, scalar = _parse_summary_value(summary)
        if tag and scalar is not None:
            log_builder.add_point(tag, step, scalar)
            log_builder.records += 1
            has_scalar = True
    # events of graphs and texts have a time as well, at step 0
    if has_scalar and time:
        log_builder.add_point("wall_time", step, time)


def _parse_summary_value(value: bytes) -> tuple[str, float | None]:
    """Name and number of a Summary.Value; None where it holds no single number.

    `simple_value` (field 2) is of PyTorch's writer, `tensor` (field 8) of TensorFlow 2 and JAX.
    """
    tag, scalar = "", None
    for number, content in parse_fields(value):
        if number == 1:
            tag = field_as_bytes(content).decode("utf-8", "replace")
        elif number == 2:
            scalar = field_as_float(content)
        elif number == 8:
            scalar = _parse_single_number_tensor(field_as_bytes(content))
    return tag, scalar


def _parse_single_number_tensor(raw: bytes) -> float | None:
    """The one number of a tensor; None where it holds another kind or several."""
    kind: WireValue = 0
    numbers: list[float] = []
    for number, value in parse_fields(raw):
        if number == 1:
            kind = value
        # tensor_content, float_val and double_val: a writer fills one of them
        elif number in (4, 5, 6) and kind in (DT_FLOAT, DT_DOUBLE):
            numbers += np.frombuffer(
                field_as_bytes(value), "<f8" if kind == DT_DOUBLE else "<f4"
            ).tolist()
    return numbers[0] if len(numbers) == 1 else None
