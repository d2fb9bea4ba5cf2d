"""The columns of the training files, by their first rows, and when the files last changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from truetune.data.find_data_files import (
    COMPRESSION_SUFFIXES,
    KIND_BY_SUFFIX,
    DataFile,
    find_data_files_of_paths,
    open_raw,
)
from truetune.data.read_file_records import read_records
from truetune.errors import DataError
from truetune.parsing.decompress_within_limits import UNREADABLE
from truetune.settings.config import Config

DATA_SUFFIXES = frozenset((*KIND_BY_SUFFIX, *COMPRESSION_SUFFIXES))
SAVED_DATA_SET_FILE = ("state.json", "dataset_dict.json")
"""What `datasets` writes beside its rows"""


def training_columns(config: Config) -> frozenset[str]:
    """The columns of the first row; empty where no training file is available."""
    first_rows = (_first_row_of_source(source) for source in local_training_sources(config))
    return frozenset(map(str, next((row for row in first_rows if row), {})))


def columns_of_file(name: str) -> frozenset[str]:
    """The columns of the first row of a local file; empty where it holds none."""
    return frozenset(map(str, _first_row_of_file(name)))


def file_holds_chats(name: str) -> bool:
    """Are the rows of a local file chats: a column of messages, or a prompt that is a list of them?"""
    row = _first_row_of_file(name)
    if not {"messages", "conversations"}.isdisjoint(row):
        return True
    prompt = row.get("prompt")
    return isinstance(prompt, list) and all(
        isinstance(one, dict) and "role" in one for one in prompt
    )


def _first_row_of_file(name: str) -> dict[Any, Any]:
    """The first row of a local file; empty where it holds none."""
    first_rows = (_first_row_of_source(source) for source in local_data_files(name))
    return next((row for row in first_rows if row), {})


def _first_row_of_source(source: DataFile) -> dict[Any, Any]:
    """The first row of one file."""
    try:
        with open_raw(source.path) as raw:
            rows = (record.row for record in read_records(source, raw))
            return next((row for row in rows if isinstance(row, dict)), {})
    except (DataError, *UNREADABLE):
        return {}


def local_training_sources(config: Config) -> list[DataFile]:
    """The training files that are on this machine, those that truetune does not read itself among them."""
    named = [*config.spec.data, *map(str, config.spec.training.other.get("datasets") or ())]
    beside = Path(config.path).parent
    data_files = []
    for name in named:
        data_files += local_data_files(name) or local_data_files(str(beside / name))
    return data_files


def local_data_files(name: str) -> list[DataFile]:
    """The data files that a name means; none where it is not on this machine, or is a folder without any of its own."""
    path = Path(name)
    if "://" in name or "\0" in name:
        return []
    try:
        if path.is_dir() and not any(
            entry.suffix in DATA_SUFFIXES or entry.name in SAVED_DATA_SET_FILE
            for entry in path.iterdir()
        ):
            return []
        return find_data_files_of_paths([name])
    except (DataError, OSError):
        return []


def last_changed_training_file(config: Config) -> tuple[Path, float] | None:
    """The training file that changed last, and when (seconds since 1970); None where none is available."""
    paths = [Path(str(source.path)) for source in local_training_sources(config)]
    try:
        return max(
            ((path, path.stat().st_mtime) for path in paths), key=lambda pair: pair[1], default=None
        )
    except OSError:
        return None
