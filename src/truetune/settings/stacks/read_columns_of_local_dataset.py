"""Reads the columns of a local data set from the head of its first file.

Readers of settings need them before any row is read: what TRL supervises depends on whether there is a `prompt` column,
and rows with `input_ids` are encoded already. The first row stands for all; rows that differ are found when data are
read.
"""

from __future__ import annotations

from pathlib import Path

from truetune.parsing.parse_json_within_limits import RowDecoder

# A first row that is longer has no columns here, and nothing is said of the data set.
HEAD_BYTES = 1 << 20
"""Bytes of a file that are looked at"""


def columns_of_first_row(paths: tuple[str, ...]) -> frozenset[str]:
    """The columns of the first row; empty if they are not found quickly."""
    for name in paths:
        path = Path(name)
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and (found := _columns_of_file(file)):
                return found
    return frozenset()


def _columns_of_file(path: Path) -> frozenset[str]:
    """The columns of a file's first row; empty if it can't be read."""
    if path.suffix == ".parquet":
        from truetune.parsing.read_parquet_and_arrow_within_limits import UNREADABLE, open_parquet

        try:
            return frozenset(open_parquet(path).schema_arrow.names)
        except UNREADABLE:
            return frozenset()
    if path.suffix not in (".jsonl", ".json", ".ndjson", ".csv"):
        return frozenset()
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES).decode("utf-8-sig", "replace").lstrip()
        if path.suffix == ".csv":
            return frozenset(name.strip().strip('"') for name in head.partition("\n")[0].split(","))
        row = RowDecoder().read_at(head.removeprefix("[").lstrip(), 0).value
    except (OSError, ValueError):
        return frozenset()
    return frozenset(map(str, row)) if isinstance(row, dict) else frozenset()
