"""Offline runs of Weights & Biases (`run-ID.wandb`): LevelDB log blocks around Record messages.

Read here because the `wandb` package has no reader in Python any more. Sources: doc/log_format.md of google/leveldb,
proto/wandb_internal.proto of wandb/wandb.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from truetune.logs.builder import Builder
from truetune.logs.wire import Value, WireError, data, fields, real, signed
from truetune.parsing.bounded_files import read_bounded
from truetune.parsing.json_reader import parse_json
from truetune.parsing.limits import BINARY_LOG, LOG_RECORD

START = b":W&B\xe1\xbe"
HEADER = len(START) + 1
BLOCK = 32_768
MOST = 1 << 26
"""Bytes of one record"""
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
HISTORY, SUMMARY, CONFIG, RUN = 2, 3, 5, 17


def read_wandb(path: Path, into: Builder) -> None:
    """History, configuration and summary of one offline run. Damage ends the file, and is noted."""
    raw = read_bounded(path, BINARY_LOG)
    if not raw.startswith(START):
        into.note(f"{path.name}: it does not begin as an offline run of W&B does")
        return
    for record in _records(raw, path.name, into):
        try:
            _record(record, into)
        except WireError as error:
            into.note(f"{path.name}: records that can't be read ({error})")


def _records(raw: bytes, name: str, into: Builder) -> Iterator[bytes]:
    at, pieces = HEADER, bytearray()
    while at < len(raw):
        left = BLOCK - at % BLOCK
        if left < 7:
            at += left
            continue
        size, kind = int.from_bytes(raw[at + 4 : at + 6], "little"), raw[at + 6 : at + 7]
        content = raw[at + 7 : at + 7 + size]
        if at + 7 + size > len(raw) or not kind:
            into.note(f"{name}: ends within a record, {len(raw) - at:,} bytes are left out")
            return
        if zlib.crc32(kind + content) != int.from_bytes(raw[at : at + 4], "little"):
            into.note(f"{name}: damaged after {at:,} of {len(raw):,} bytes; the rest is left out")
            return
        at += 7 + size
        if kind[0] in (FULL, FIRST):
            pieces.clear()
        pieces += content
        if len(pieces) > MOST:
            into.note(f"{name}: a record of more than {MOST >> 20} MB; the rest is left out")
            return
        if kind[0] in (FULL, LAST):
            yield bytes(pieces)


def _record(raw: bytes, into: Builder) -> None:
    for number, value in fields(raw):
        if number == HISTORY:
            record = dict(_item(data(v)) for n, v in fields(data(value)) if n == 1)
            if set(record) - {"_step", "_runtime", "_timestamp"}:
                into.record(record)
        elif number in (CONFIG, SUMMARY):
            _facts(data(value), number == CONFIG, into)
        elif number == RUN:
            for n, v in fields(data(value)):
                if n == 4:
                    _facts(data(v), True, into)


def _facts(raw: bytes, config: bool, into: Builder) -> None:
    for number, value in fields(raw):
        if number == 1:
            name, fact = _item(data(value))
            if config or name in ("train_runtime", "train/train_runtime", "train/total_flos"):
                into.facts.setdefault(name.removeprefix("train/"), fact)


def _item(raw: bytes) -> tuple[str, Any]:
    """Name and value of a HistoryItem, ConfigItem or SummaryItem."""
    name: list[str] = []
    made: Any = None
    for number, value in fields(raw):
        if number in (1, 2):
            name.append(data(value).decode("utf-8", "replace"))
        else:
            made = _typed(number, value)
    return "/".join(name), made


def _typed(number: int, value: Value) -> Any:
    if number == 5:
        return signed(value)
    if number == 6:
        return real(value)
    if number in (7, 8, 16):
        text = data(value).decode("utf-8", "replace")
        if number == 7:
            return text
        try:
            return parse_json(text, LOG_RECORD)
        except ValueError:
            return text
    return None
