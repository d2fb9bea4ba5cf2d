"""Names the files that encoded data was made from by their paths below the folder that all of them share.

Encoded data is passed on, and an absolute path tells strangers the names of users, of customers, of machines. So a
file is called by its path below the folder that all files of the data have in common.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from truetune.data.find_data_files import DataFile
from truetune.data.remote_path import RemotePath


class SourceNames(NamedTuple):
    """What the files of some data are called."""

    root: str | None
    """The folder that the names begin at; None where the files have none in common"""
    names: tuple[str, ...]
    """Of each file, in order"""


def names_relative_to_common_folder(sources: Sequence[DataFile]) -> SourceNames:
    """The names of some files, below the folder that holds them all.

    Where they have none but the top of the file system, or some are in a store, each is called by as much of the end of
    its path as tells it from the others; files of several stores by their URI.
    """
    places = [source.path for source in sources]
    remote = [path for path in places if isinstance(path, RemotePath)]
    local = [os.path.abspath(path) for path in places if isinstance(path, Path)]
    if not remote:
        return _local_names(local)
    if not local and len({path.top for path in remote}) == 1:
        return _names_in_store(remote)
    ends = iter(_shortest_distinct_path_ends(local))
    mixed = [next(ends) if isinstance(path, Path) else str(path) for path in places]
    return SourceNames(None, tuple(mixed))


def _local_names(paths: Sequence[str]) -> SourceNames:
    """The names of files on a disk, by their absolute paths."""
    root = _common_folder([os.path.dirname(path) for path in paths])
    if os.path.dirname(root) == root:
        # The top of the file system: names below it would be the whole paths, which is what is to be kept back.
        return SourceNames(None, _shortest_distinct_path_ends(paths))
    return SourceNames(root, tuple(Path(os.path.relpath(path, root)).as_posix() for path in paths))


def _names_in_store(paths: Sequence[RemotePath]) -> SourceNames:
    """The names of files in one store, below the folder that holds them all."""
    inside = _common_folder(["/" + path.parent.path for path in paths]).strip("/")
    skipped = len(inside) + 1 if inside else 0
    return SourceNames(
        str(RemotePath(paths[0].top, inside)), tuple(path.path[skipped:] for path in paths)
    )


def _shortest_distinct_path_ends(paths: Sequence[str]) -> tuple[str, ...]:
    """The last parts of each path, as few for all as tell every two apart."""
    parts = [Path(path).parts for path in paths]
    count = 1
    while len({part[-count:] for part in parts}) < len(set(parts)):
        count += 1
    return tuple("/".join(part[-count:]).lstrip("/") for part in parts)


def _common_folder(folders: Sequence[str]) -> str:
    """The folder that all of these lie in; empty for none, which `os.path.commonpath` refuses."""
    return os.path.commonpath(folders) if folders else ""
