"""The columns of a local data set, from the head of its first file."""

from __future__ import annotations

import json
from pathlib import Path

HEAD = 1 << 20
"""Bytes of a file that are looked at"""


def columns(paths: tuple[str, ...]) -> frozenset[str]:
    """The columns of the first row; none where that cannot be told in passing."""
    for name in paths:
        path = Path(name)
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in files:
            if file.is_file() and (found := _of_file(file)):
                return found
    return frozenset()


def _of_file(path: Path) -> frozenset[str]:
    if path.suffix == ".parquet":
        from pyarrow import ArrowException
        from pyarrow.parquet import read_schema

        try:
            return frozenset(read_schema(path).names)
        except (ArrowException, OSError):
            return frozenset()
    if path.suffix not in (".jsonl", ".json", ".ndjson", ".csv"):
        return frozenset()
    try:
        with path.open("rb") as file:
            head = file.read(HEAD).decode("utf-8-sig", "replace").lstrip()
        if path.suffix == ".csv":
            return frozenset(name.strip().strip('"') for name in head.partition("\n")[0].split(","))
        row, _ = json.JSONDecoder().raw_decode(head.removeprefix("[").lstrip())
    except (OSError, ValueError, RecursionError):
        return frozenset()
    return frozenset(map(str, row)) if isinstance(row, dict) else frozenset()
