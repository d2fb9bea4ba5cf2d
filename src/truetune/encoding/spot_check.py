"""Replay: random rows of encoded data, encoded again and compared with what is written."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as arrow
from pyarrow import parquet

from truetune.data.conversation import Conversation
from truetune.data.files import Source, open_raw
from truetune.data.records import records
from truetune.data.remote import Place
from truetune.data.rows import conversations
from truetune.data.stretches import Stretch, read_stretch
from truetune.encoding.documents import Document
from truetune.encoding.encoded_folder import AnyEntry
from truetune.encoding.folder_layout import DATA
from truetune.encoding.shard import maker_of
from truetune.encoding.source_names import names_of
from truetune.errors import DataError
from truetune.render.probes import Probes
from truetune.render.rendering import IGNORED
from truetune.spec.run import RunSpec

SHARDS = 2
"""Shards that the rows are taken from: each is read whole."""


def verify_random_rows(
    made: Probes, sources: Sequence[Source], manifest: dict[str, Any], entry: AnyEntry, count: int
) -> None:
    """Encode `count` random rows again, by `tokenizers` alone.

    Of a file that can only be read from its start, they are among those of its first shard. Raises DataError where one
    differs from what is written.
    """
    maker = maker_of(made, only_reference=True)
    shards = list(_within_reach(manifest["shards"]))
    by_name = dict(zip(names_of(sources).names, sources, strict=True))
    for shard in random.sample(shards, min(SHARDS, len(shards))):
        wanted = {shard["row"] + random.randrange(shard["rows"]) for _ in range(count // SHARDS)}
        written = _read_written(entry, shard, wanted)
        for row in _read_rows(made.spec, by_name[shard["source"]], shard, wanted):
            _compare_row(row, maker.make([row]).documents, written.get(row.origin.row, []))


def _within_reach(shards: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    seen = set()
    for shard in shards:
        if shard["rows"] and (shard["stretch"] or shard["source"] not in seen):
            yield shard
        seen.add(shard["source"])


def _read_rows(
    spec: RunSpec, source: Source, shard: dict[str, Any], wanted: set[int]
) -> list[Conversation]:
    form: dict[str, Any] = {
        "format": spec.format,
        "columns": spec.map,
        "on_broken": lambda *_: None,
    }
    if shard["stretch"]:
        found = read_stretch(source, Stretch(*shard["stretch"]), shard["row"], **form)
        return [row for row in found if row.origin.row in wanted]
    with open_raw(source.path) as raw:
        found = conversations(records(source, raw), source, shard["row"], **form)
        return [
            row for row in islice(found, max(wanted) - shard["row"] + 1) if row.origin.row in wanted
        ]


def _read_written(
    entry: AnyEntry, shard: dict[str, Any], rows: set[int]
) -> dict[int, list[tuple[list[int], list[int]]]]:
    """(ids, labels) of each document of these rows."""
    table = _read_table(entry.folder / DATA / shard["file"])
    origins = table if "row" in table.column_names else _read_table(entry.origins(shard))
    packed = "seq_lengths" in origins.column_names
    found: dict[int, list[tuple[list[int], list[int]]]] = {}
    for i, value in enumerate(origins.column("row").to_pylist()):
        numbers = value if packed else [value]
        if rows.isdisjoint(numbers):
            continue
        ids, labels = table["input_ids"][i].as_py(), table["labels"][i].as_py()
        at = 0
        for number, length in zip(
            numbers, origins["seq_lengths"][i].as_py() if packed else [len(ids)], strict=True
        ):
            part = slice(at, at + length)
            found.setdefault(number, []).append((ids[part], labels[part]))
            at += length
    return found


def _read_table(path: Place) -> Any:
    with (
        arrow.memory_map(str(path))
        if isinstance(path, Path)
        else arrow.BufferReader(path.read_bytes())
    ) as file:
        return (
            parquet.read_table(file)
            if path.suffix == ".parquet"
            else arrow.ipc.open_stream(file).read_all()
        )


def _compare_row(
    row: Conversation, made: list[Document], written: list[tuple[list[int], list[int]]]
) -> None:
    packed = [(ids, labels[1:]) for ids, labels in written]
    labels = [
        [id if s else IGNORED for id, s in zip(d.ids.tolist(), d.supervised.tolist(), strict=True)]
        for d in made
    ]
    again = [(document.ids.tolist(), own[1:]) for document, own in zip(made, labels, strict=True)]
    if sorted(packed) != sorted(again):
        raise DataError(
            f"{row.origin}: encodes otherwise than what was written from it; delete the folder to"
            f" encode all anew, and please report this\n  written: {written}\n  again:   {again}"
        )
