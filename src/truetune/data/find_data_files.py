"""Finds the data files that a list of paths, folders and globs means, and opens each.

A path is tried as a folder, a file, a glob and a data set in the Hugging Face cache, in this order: what exists wins.
The kind of a file follows from its name, and from its first bytes where the name says nothing; the content of a row
never decides it.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable
from itertools import islice
from pathlib import Path, PurePath
from typing import IO, Any, NamedTuple

from truetune.data.find_cached_hub_datasets import (
    find_cached_dataset_files,
    may_be_hub_name,
    message_for_uncached_dataset,
)
from truetune.data.remote_path import DataPath, RemotePath, parse_data_path
from truetune.errors import DataError, format_name_list
from truetune.parsing.decompress_within_limits import (
    COMPRESSED_SUFFIXES,
    UNREADABLE,
    open_decompressed,
)
from truetune.parsing.input_limits import MODEL_FILE
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.settings.suggest_spelling import did_you_mean_path

KIND_BY_SUFFIX = {
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    ".json": "json",
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    ".parquet": "parquet",
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow"),
}
COMPRESSION_SUFFIXES = COMPRESSED_SUFFIXES
# Four bytes of ones begin a message of an Arrow stream; JSON is told by its bracket, and JSONL is
# read as JSON then, which takes rows that follow each other as well.
MAGIC_BYTES = (
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow"),
    (b"\xff\xff\xff\xff", "arrow"),
    (b"[", "json"),
    (b"{", "json"),
)
MAX_HINT_ENTRIES = 1_000
"""Files and folders below a folder without data that are looked at to name the place that may be meant"""
NOT_ROWS = ("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json")
"""Files that describe the data beside them."""


class DataFile(NamedTuple):
    """One file of rows."""

    path: DataPath
    kind: str
    """jsonl, json, csv, parquet or arrow"""


def find_data_files_of_paths(paths: Iterable[str]) -> list[DataFile]:
    """The data files that these paths mean, in order. Raises DataError for a path that is not there
    or holds no data.
    """
    sources: list[DataFile] = []
    for name in paths:
        path = parse_data_path(name)
        name = str(path) if isinstance(path, RemotePath) else name
        # In this order, so that a folder called `owner/name` is never taken for a data set of the
        # hub.
        if path.is_dir():
            sources += _data_files_of_folder(path)
        elif path.is_file():
            sources.append(DataFile(path, file_kind(path)))
        elif glob.has_magic(name):
            files = _files_in_name_order(_expand_glob(path))
            if not files:
                raise DataError(f"{name}: no file fits this pattern")
            sources += [DataFile(match, file_kind(match)) for match in files]
        else:
            cached = find_cached_dataset_files(name) if may_be_hub_name(name) else []
            if not cached:
                raise DataError(_error_for_missing_path(name, path))
            sources += [DataFile(file, file_kind(file)) for file in cached]
    return sources


def _expand_glob(pattern: DataPath) -> Iterable[DataPath]:
    """The files and folders that a glob fits, on this machine or in a remote store."""
    if isinstance(pattern, RemotePath):
        return pattern.expand_glob()
    return map(Path, glob.glob(str(pattern), recursive=True))


def _files_in_name_order(paths: Iterable[DataPath]) -> list[DataPath]:
    """The files among some paths, in the order of their names."""
    # Sorted by name: file systems list in any order, and the numbers of rows must not depend on it.
    return sorted((path for path in paths if path.is_file()), key=str)


def file_kind(path: DataPath) -> str:
    """The kind of a file (json, csv, ...) by its name, otherwise by its first bytes. Raises
    DataError if neither tells.
    """
    kind_by_name = _kind_by_suffix(path)
    if kind_by_name is not None:
        return kind_by_name
    try:
        with open_raw(path) as raw:
            # A byte order mark and white space may stand before the first bracket.
            head = open_decompressed_bytes(raw, path).read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    except UNREADABLE as error:
        raise DataError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    for magic, kind in MAGIC_BYTES:
        if head.startswith(magic):
            return kind
    known = ", ".join(KIND_BY_SUFFIX)
    raise DataError(
        f"{path}: unknown kind of file; expected one of {known}, or one of these with"
        f" {', '.join(COMPRESSION_SUFFIXES)}"
    )


def open_raw(path: DataPath) -> IO[bytes]:
    """The bytes of a file as they are stored. Raises DataError where it can't be opened."""
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None


def open_decompressed_bytes(raw: IO[bytes], path: DataPath) -> IO[bytes]:
    """The decompressed bytes of an open file, from its start; closing them leaves `raw` open."""
    # The caller may have read from it before, as `file_kind` does.
    raw.seek(0)
    suffix = path.suffix.lower()
    return open_decompressed(raw, suffix) if suffix in COMPRESSION_SUFFIXES else raw


def _kind_by_suffix(path: DataPath) -> str | None:
    """The kind of a file by its last suffix, without `.gz` and the like; None if it tells nothing."""
    name = PurePath(path.name)
    if name.suffix.lower() in COMPRESSION_SUFFIXES:
        name = name.with_suffix("")
    return KIND_BY_SUFFIX.get(name.suffix.lower())


def _data_files_of_folder(folder: DataPath) -> list[DataFile]:
    """The data files of a folder: the Arrow files of a `datasets` folder (state.json,
    dataset_dict.json), otherwise the files in it.
    """
    # What `datasets` wrote names its own files; caches and state files beside them are not rows.
    splits = folder / "dataset_dict.json"
    if splits.is_file():
        return _data_files_of_folder(_train_split_folder(folder, splits))
    state = folder / "state.json"
    if state.is_file():
        return [
            _arrow_file_of_entry(folder, entry)
            for entry in _list_in_datasets_json(state, "_data_files")
        ]
    sources = []
    for path in _files_in_name_order(folder.iterdir()):
        kind = _kind_by_suffix(path)
        if kind is not None and path.name not in NOT_ROWS:
            sources.append(DataFile(path, kind))
    if sources:
        return sources
    # Folders are not entered: `data/` may hold evaluation data or old versions that nobody meant.
    # Only the first entries are looked at for the hint: the folder may be somebody's home.
    entries: Iterable[DataPath] = islice(folder.rglob("*"), MAX_HINT_ENTRIES)
    below = next((path for path in _files_in_name_order(entries) if _kind_by_suffix(path)), None)
    hint = f"; there are some below: name {below.parent}" if below else ""
    raise DataError(
        f"{folder}: no data file in this folder; expected {', '.join(KIND_BY_SUFFIX)}{hint}"
    )


def _train_split_folder(folder: DataPath, splits: DataPath) -> DataPath:
    """The folder of the split `train` of a `datasets` folder. Raises DataError where there is none."""
    names = _list_in_datasets_json(splits, "splits")
    if "train" not in names:
        raise DataError(
            f"{folder}: its splits are {format_name_list(names)}; name one of these folders"
        )
    if not (folder / "train").is_dir():
        raise DataError(f"{folder / 'train'}: no such folder, though {splits.name} names it")
    return folder / "train"


def _list_in_datasets_json(path: DataPath, key: str) -> list[Any]:
    """The list of this name in a JSON file that `datasets` wrote beside its tables. Raises
    DataError.
    """
    wrong = f"{path}: not as `datasets` saves it"
    try:
        description = parse_json(path.read_bytes(), MODEL_FILE)
    except ValueError as error:
        raise DataError(f"{wrong} ({str(error)[:200]}); save the data set again") from None
    listed = description.get(key) if isinstance(description, dict) else None
    if not isinstance(listed, list):
        raise DataError(f"{wrong} (no list `{key}` in it); save the data set again")
    return listed


def _arrow_file_of_entry(folder: DataPath, entry: Any) -> DataFile:
    """The Arrow file that an entry of state.json names. Raises DataError."""
    name = entry.get("filename") if isinstance(entry, dict) else None
    # A name with a slash would lead out of the folder: the file is input like any other.
    if not isinstance(name, str) or PurePath(name).name != name:
        raise DataError(
            f"{folder / 'state.json'}: expected the names of files of this folder; save the data"
            " set again"
        )
    path = folder / name
    if not path.is_file():
        raise DataError(
            f"{path}: no such file, though state.json names it; save the data set again"
        )
    return DataFile(path, "arrow")


def _error_for_missing_path(name: str, path: DataPath) -> str:
    """The error message for a path that is not there, with what may have been meant."""
    if isinstance(path, RemotePath):
        return f"{name}: no such file or folder"
    hint = did_you_mean_path(path)
    if not hint and may_be_hub_name(name):
        return message_for_uncached_dataset(name)
    return f"{name}: no such file or folder{hint}"
