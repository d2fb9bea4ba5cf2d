"""Reads the rows of the file beside the script that a value of its symbolic run comes from.

How it works: from a data set, a row or a cell back through everything that it was made of, to the
one name of a data file on the way; that file is read where it is here. Rows that stand in the
script itself are taken as they are.

The trade-off: where the way back leads to two files, or to none, nothing is known. Filters are not
evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from truetune.data.find_data_files import find_data_files_of_paths, open_raw
from truetune.data.read_file_records import read_records
from truetune.errors import DataError
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Constant,
    Item,
    Library,
    Option,
    Parameter,
    Result,
    Sequence,
    Value,
    parts_of_value,
)
from truetune.source.symbolic_execution.values_of_run import Mapping as MappingValue

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".ndjson")
TEXT_SUFFIXES = (".csv", ".tsv")
TEXT_READERS = ("csv.DictReader", "csv.reader")
"""Readers that give every cell as a text"""
TYPED_READERS = ("pandas.read_*", "datasets.load_dataset", "datasets.Dataset.from_*", "polars.*")
"""Readers that make numbers and truth values of cells that all look like it"""
MAX_VALUES = 2_000
"""Values that are looked at behind one. Chosen: a cell of a mapped data set has some dozens"""
MAX_BYTES, MAX_ROWS = 64 << 20, 20_000
"""The largest file that is read, and the rows of it"""
MAX_FOLDERS = 3
"""Folders above the script in which a relative path is looked for: the root that it is started from"""


class FileRows(NamedTuple):
    """Rows, and where they stand."""

    rows: tuple[Mapping[str, Any], ...]
    source: str
    are_texts: bool
    """Does the script get every cell as a text, whatever it looks like?"""
    is_whole: bool
    """Are these all rows of the file?"""


def local_rows_of_value(module: Module, value: Value) -> FileRows | None:
    """The rows that a value was made of; None where they are not here, or are of several files."""
    sources = list(_sources_of_value(value))
    names = {one for one in sources if isinstance(one, str)}
    if len(names) == 1:
        readers = [one for one in sources if isinstance(one, CallEvent)]
        return _rows_of_named_file(module, names.pop(), readers)
    inside = [one for one in sources if isinstance(one, tuple)]
    if not names and len(inside) == 1:
        return FileRows(inside[0], "the rows in this file", False, True)
    return None


def _rows_of_named_file(module: Module, name: str, readers: list[CallEvent]) -> FileRows | None:
    """The rows of a file that a script reads by these calls; None where it is not here, or has
    none.
    """
    path = find_data_file(module, name)
    rows = () if path is None else read_first_rows_of_file(path)
    if path is None or not rows:
        return None
    are_texts = name.lower().endswith(TEXT_SUFFIXES) and _readers_keep_cells_as_texts(readers)
    return FileRows(rows, path.name, are_texts, len(rows) < MAX_ROWS)


def _readers_keep_cells_as_texts(readers: list[CallEvent]) -> bool:
    """Do these calls read a table, and make no numbers of its cells?"""
    makes_numbers = any(
        one.named(*TYPED_READERS) and not _reads_every_cell_as_text(one) for one in readers
    )
    return bool(readers) and not makes_numbers


def readers_of_value(value: Value) -> list[CallEvent]:
    """The calls that read the rows which a value was made of."""
    return [one for one in _sources_of_value(value) if isinstance(one, CallEvent)]


def _sources_of_value(
    value: Value,
) -> Iterator[str | CallEvent | tuple[Mapping[str, Any], ...]]:
    """Names of data files, readers, and rows in the script, that a value was made of."""
    pending: list[Value] = [value]
    seen: set[int] = set()
    while pending and len(seen) < MAX_VALUES:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        plain = constant_of(one) if isinstance(one, Constant | Option) else NO_CONSTANT
        if isinstance(plain, str) and plain.lower().endswith(SUFFIXES):
            yield plain
            continue
        if isinstance(one, Result) and one.call.named(*TEXT_READERS, *TYPED_READERS):
            yield one.call
        rows = _rows_written_in_list(one)
        if rows:
            yield rows
            continue
        pending.extend(_direct_sources(one))


def _reads_every_cell_as_text(call: CallEvent) -> bool:
    """Does a reader of tables leave every cell a text: `dtype=str`?"""
    dtype_argument = call.keywords.get("dtype")
    return (isinstance(dtype_argument, Library) and dtype_argument.name == "str") or (
        dtype_argument is not None and constant_of(dtype_argument) in ("str", "string", "object")
    )


def _direct_sources(value: Value) -> Iterator[Value]:
    """What a value was made of."""
    if isinstance(value, Parameter) and value.given_by is not None:
        yield from () if value.given_by.receiver is None else (value.given_by.receiver,)
        yield from value.given_by.args[:1]
        return
    chosen = _file_of_split(value)
    if chosen is not None:
        yield chosen
        return
    yield from parts_of_value(value)


def _file_of_split(value: Value) -> Value | None:
    """The file of one split: `load_dataset("json", data_files={"train": ..., "test":
    ...})["train"]`.
    """
    if isinstance(value, Item) and isinstance(value.base, Result):
        call, split = value.base.call, constant_of(value.key)
    elif isinstance(value, Result):
        call, split = value.call, constant_of(value.call.keywords.get("split") or Constant(None))
    else:
        return None
    files = call.keywords.get("data_files")
    if not call.named("datasets.load_dataset") or not isinstance(files, MappingValue):
        return None
    # `test[:60]` is a part of the split `test`.
    return files.entries.get(split.partition("[")[0]) if isinstance(split, str) else None


def _rows_written_in_list(value: Value) -> tuple[Mapping[str, Any], ...]:
    """The rows of a list of dictionaries that stands in the script; none for anything else."""
    if not isinstance(value, Sequence) or value.is_open or len(value.items) < 2:
        return ()
    rows = [constant_of(one, with_defaults=False) for one in value.items]
    known = [row for row in rows if isinstance(row, dict)]
    return tuple(known) if len(known) == len(rows) else ()


def find_data_file(module: Module, name: str) -> Path | None:
    """The path of a data file that a script names, from its folder or one above it; None where it
    is not there.
    """
    folder = Path(module.path).resolve().parent
    for around in (folder, *list(folder.parents)[:MAX_FOLDERS]):
        path = around / name
        try:
            if path.is_file() and path.stat().st_size <= MAX_BYTES:
                return path
        except (OSError, ValueError):
            return None
    return None


def read_first_rows_of_file(path: Path) -> tuple[Mapping[str, Any], ...]:
    """The first rows of a file; none where it is not here, too large, or can't be read."""
    try:
        file_size = path.stat()
    except (OSError, ValueError):
        return ()
    return (
        _read_first_rows_cached(str(path), file_size.st_mtime_ns)
        if file_size.st_size <= MAX_BYTES
        else ()
    )


@lru_cache(maxsize=8)
def _read_first_rows_cached(path: str, changed: int) -> tuple[Mapping[str, Any], ...]:
    """The first rows of a file; none where it can't be read. `changed` is when it was written, for
    the cache.
    """
    try:
        source = find_data_files_of_paths([path])[0]
        with open_raw(source.path) as raw:
            records = [record.row for record in islice(read_records(source, raw), MAX_ROWS)]
    except (DataError, IndexError, OSError):
        return ()
    return tuple(row for row in records if isinstance(row, dict))
