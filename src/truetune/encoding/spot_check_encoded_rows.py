"""Spot check: random rows of encoded data, encoded again and compared with what is written.

Before encoded data is used again, its key says that nothing has changed that shapes it, and its digests that no byte
has. Neither says that the version which wrote it was right. So a few rows are encoded again by `tokenizers` and the
template, without a shortcut. The trade-off: a few seconds at each use, for a chance to see a defect that a fast path
had; a fault of one row in a thousand is mostly missed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
from pyarrow import parquet

from truetune.data.conversation import Conversation
from truetune.data.find_data_files import DataFile, open_raw
from truetune.data.read_file_records import read_records
from truetune.data.read_rows_as_conversations import conversations_of_records
from truetune.data.remote_path import DataPath
from truetune.data.split_lines_into_stretches import Stretch, read_stretch
from truetune.encoding.encode_shard import make_document_maker
from truetune.encoding.encoded_folder_layout import DATA
from truetune.encoding.encoded_folder_on_disk import AnyEncodedFolder
from truetune.encoding.make_documents_or_reject_rows import Document
from truetune.encoding.relative_names_of_data_files import names_relative_to_common_folder
from truetune.errors import DataError
from truetune.render.rendering import IGNORED
from truetune.render.template_probes import Probes
from truetune.settings.run_spec import RunSpec

SHARDS = 2
"""Shards that the rows are taken from: each is read whole."""


def verify_random_rows(
    probes: Probes,
    sources: Sequence[DataFile],
    manifest: dict[str, Any],
    entry: AnyEncodedFolder,
    count: int,
) -> None:
    """Encode `count` random rows again, by `tokenizers` alone.

    Of a file that can only be read from its start, they are among those of its first shard. Raises DataError where one
    differs from what is written.
    """
    maker = make_document_maker(probes, only_reference=True)
    # Not seeded: each use of the data looks at other rows.
    shards = list(_shards_readable_alone(manifest["shards"]))
    by_name = dict(zip(names_relative_to_common_folder(sources).names, sources, strict=True))
    for shard in random.sample(shards, min(SHARDS, len(shards))):
        rows = range(shard["row"], shard["row"] + shard["rows"])
        wanted = set(random.sample(rows, min(count // SHARDS, len(rows))))
        written = _read_written_ids_and_labels(entry, shard, wanted)
        for row in _read_rows_by_number(probes.spec, by_name[shard["source"]], shard, wanted):
            _compare_row(row, maker.make([row]).documents, written.get(row.origin.row, []))


def _shards_readable_alone(shards: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The shards whose rows can be read without reading all before them: a stretch, or the first of its file."""
    seen = set()
    for shard in shards:
        if shard["rows"] and (shard["stretch"] or shard["source"] not in seen):
            yield shard
        seen.add(shard["source"])


def _read_rows_by_number(
    spec: RunSpec, source: DataFile, shard: dict[str, Any], wanted: set[int]
) -> list[Conversation]:
    """The rows with some numbers, of one shard of a data file; broken lines are passed over, as they were then."""
    form: dict[str, Any] = {
        "format": spec.format,
        "columns": spec.map,
        "on_broken": lambda *_: None,
    }
    if shard["stretch"]:
        conversations = read_stretch(source, Stretch(*shard["stretch"]), shard["row"], **form)
        return [row for row in conversations if row.origin.row in wanted]
    with open_raw(source.path) as raw:
        conversations = conversations_of_records(
            read_records(source, raw), source, shard["row"], **form
        )
        return [
            row
            for row in islice(conversations, max(wanted) - shard["row"] + 1)
            if row.origin.row in wanted
        ]


def _read_written_ids_and_labels(
    entry: AnyEncodedFolder, shard: dict[str, Any], rows: set[int]
) -> dict[int, list[tuple[list[int], list[int]]]]:
    """(ids, labels) of each document of these rows, by the row's number."""
    table = _read_table(entry.folder / DATA / shard["file"])
    # Some trainers must not find columns that they don't know: these stand in a file of their own then.
    origins = table if "row" in table.column_names else _read_table(entry.origins(shard))
    is_packed = "seq_lengths" in origins.column_names
    documents: dict[int, list[tuple[list[int], list[int]]]] = {}
    for i, value in enumerate(origins.column("row").to_pylist()):
        numbers = value if is_packed else [value]
        if rows.isdisjoint(numbers):
            continue
        ids, labels = table["input_ids"][i].as_py(), table["labels"][i].as_py()
        lengths = origins["seq_lengths"][i].as_py() if is_packed else [len(ids)]
        start = 0
        for number, length in zip(numbers, lengths, strict=True):
            own = slice(start, start + length)
            documents.setdefault(number, []).append((ids[own], labels[own]))
            start += length
    return documents


def _read_table(path: DataPath) -> Any:
    """A shard's pyarrow.Table: Parquet or an Arrow stream, by its suffix; mapped from a disk, read from a store."""
    is_local = isinstance(path, Path)
    source = arrow.memory_map(str(path)) if is_local else arrow.BufferReader(path.read_bytes())
    with source as file:
        if path.suffix == ".parquet":
            return parquet.read_table(file)
        return arrow.ipc.open_stream(file).read_all()


def _compare_row(
    row: Conversation, encoded_again: list[Document], written: list[tuple[list[int], list[int]]]
) -> None:
    """Raise DataError where the documents of a row that was encoded again are not what is `written` of it."""
    # Without the first label, which packing sets to "ignored". Sorted, for packing shares documents out over rows.
    before = [(ids, labels[1:]) for ids, labels in written]
    again = [(document.ids.tolist(), _labels(document)[1:]) for document in encoded_again]
    if sorted(before) != sorted(again):
        raise DataError(
            f"{row.origin}: encodes otherwise than what was written from it; delete the folder to"
            f" encode all again, and please report this\n  written: {written}\n  again:   {again}"
        )


def _labels(document: Document) -> list[int]:
    """The labels of a document as they are written: its ids, IGNORED where they are not supervised."""
    labels: list[int] = np.where(document.supervised, document.ids, np.int32(IGNORED)).tolist()
    return labels
