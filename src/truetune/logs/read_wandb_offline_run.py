"""Reads an offline run of Weights & Biases (`run-ID.wandb`), without the `wandb` package.

Read here because the `wandb` package has no reader in Python any more. Sources: doc/log_format.md of google/leveldb,
proto/wandb_internal.proto of wandb/wandb.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from truetune.logs.parse_protobuf_fields import (
    WireError,
    WireValue,
    field_as_bytes,
    field_as_float,
    parse_fields,
    varint_as_signed_int,
)
from truetune.logs.run_log_builder import RunLogBuilder
from truetune.parsing.input_limits import BINARY_LOG, LOG_RECORD
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.parsing.read_files_within_limits import read_bytes_within_limit

FILE_MAGIC = b":W&B\xe1\xbe"
HEADER_BYTES = len(FILE_MAGIC) + 1
BLOCK_BYTES = 32_768
"""Size of a block in LevelDB's log format, which W&B writes: no piece of a record crosses the end of
one"""
MAX_RECORD_BYTES = 1 << 26
"""Bytes of one record"""
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
"""Kinds of a piece in LevelDB's log format: a whole record, or a part of one"""
HISTORY, SUMMARY, CONFIG, RUN = 2, 3, 5, 17
"""Numbers of the fields of a record in `wandb_internal.proto`"""


def read_wandb_file(path: Path, log_builder: RunLogBuilder) -> None:
    """Read the history, configuration and summary of one offline run into the builder. Damage ends
    the file, and is noted.
    """
    raw = read_bytes_within_limit(path, BINARY_LOG)
    if not raw.startswith(FILE_MAGIC):
        log_builder.note_skipped(f"{path.name}: it does not begin as an offline run of W&B does")
        return
    for record in _records_of_leveldb_log(raw, path.name, log_builder):
        try:
            _add_wandb_record(record, log_builder)
        except WireError as error:
            log_builder.note_skipped(f"{path.name}: records that can't be read ({error})")


def _records_of_leveldb_log(raw: bytes, name: str, log_builder: RunLogBuilder) -> Iterator[bytes]:
    """The bytes of each record in a LevelDB log, joined from its pieces."""
    at, pieces = HEADER_BYTES, bytearray()
    while at < len(raw):
        left = BLOCK_BYTES - at % BLOCK_BYTES
        # a piece's head is never split: what is left of a block is filled with zeros
        if left < 7:
            at += left
            continue
        size, kind = int.from_bytes(raw[at + 4 : at + 6], "little"), raw[at + 6 : at + 7]
        content = raw[at + 7 : at + 7 + size]
        if at + 7 + size > len(raw) or not kind:
            log_builder.note_skipped(
                f"{name}: ends within a record, {len(raw) - at:,} bytes are left out"
            )
            return
        if zlib.crc32(kind + content) != int.from_bytes(raw[at : at + 4], "little"):
            log_builder.note_skipped(
                f"{name}: damaged after {at:,} of {len(raw):,} bytes; the rest is left out"
            )
            return
        at += 7 + size
        # a record whose last piece never came is dropped here
        if kind[0] in (FULL, FIRST):
            pieces.clear()
        pieces += content
        if len(pieces) > MAX_RECORD_BYTES:
            log_builder.note_skipped(
                f"{name}: a record of more than {MAX_RECORD_BYTES >> 20} MB; the rest is left out"
            )
            return
        if kind[0] in (FULL, LAST):
            yield bytes(pieces)


def _add_wandb_record(raw: bytes, log_builder: RunLogBuilder) -> None:
    """Add a Record message: a step of the history, or settings and results."""
    for number, value in parse_fields(raw):
        if number == HISTORY:
            record = dict(
                _parse_item(field_as_bytes(v))
                for n, v in parse_fields(field_as_bytes(value))
                if n == 1
            )
            # a row of clocks alone says nothing of the run
            if set(record) - {"_step", "_runtime", "_timestamp"}:
                log_builder.add_record(record)
        elif number in (CONFIG, SUMMARY):
            _add_settings_or_results(field_as_bytes(value), number == CONFIG, log_builder)
        elif number == RUN:
            for n, v in parse_fields(field_as_bytes(value)):
                if n == 4:
                    _add_settings_or_results(field_as_bytes(v), True, log_builder)


def _add_settings_or_results(raw: bytes, config: bool, log_builder: RunLogBuilder) -> None:
    """Add the settings of a ConfigRecord (`config`), or of a summary the results that transformers
    writes at the end.

    The rest of a summary is the last value of each curve, which the history has already.
    """
    for number, value in parse_fields(raw):
        if number == 1:
            name, fact = _parse_item(field_as_bytes(value))
            if config or name in ("train_runtime", "train/train_runtime", "train/total_flos"):
                log_builder.facts.setdefault(name.removeprefix("train/"), fact)


def _parse_item(raw: bytes) -> tuple[str, Any]:
    """The name and value of a HistoryItem, ConfigItem or SummaryItem."""
    name: list[str] = []
    content: Any = None
    for number, value in parse_fields(raw):
        if number in (1, 2):
            name.append(field_as_bytes(value).decode("utf-8", "replace"))
        else:
            content = _value_of_field(number, value)
    return "/".join(name), content


def _value_of_field(number: int, value: WireValue) -> Any:
    """The content of an item by the number of its field; None for a field that no log needs.

    5 and 6 are numbers, 7 is a text, 8 and 16 are JSON.
    """
    if number == 5:
        return varint_as_signed_int(value)
    if number == 6:
        return field_as_float(value)
    if number in (7, 8, 16):
        text = field_as_bytes(value).decode("utf-8", "replace")
        if number == 7:
            return text
        try:
            return parse_json(text, LOG_RECORD)
        except ValueError:
            return text
    return None
