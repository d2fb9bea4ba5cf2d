"""Names: what encoded data calls the files that it was made from.

Encoded data is passed on, and an absolute path tells strangers the names of users, of customers, of machines. So a
file is called by its path below the folder that all files of the data have in common.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from truetune.data.files import Source
from truetune.data.remote import Place, Remote


class SourceNames(NamedTuple):
    root: str | None
    """The folder that the names begin at; None where the files have none in common"""
    names: tuple[str, ...]
    """Of each file, in order"""


def names_of(sources: Sequence[Source]) -> SourceNames:
    """The names of some files, below the folder that holds them all.

    Where they have none but the top of the file system, or some are in a store, each is called by as much of the end of
    its path as tells it from the others; files of several stores by their URI.
    """
    places = [source.path for source in sources]
    here = [os.path.abspath(path) for path in places if isinstance(path, Path)]
    if len(here) == len(places):
        root = _common_folder([os.path.dirname(path) for path in here])
        if os.path.dirname(root) == root:
            return SourceNames(None, _distinct_ends(here))
        return SourceNames(
            root, tuple(Path(os.path.relpath(path, root)).as_posix() for path in here)
        )
    tops = {path.top for path in places if isinstance(path, Remote)}
    if not here and len(tops) == 1:
        folders = ["/" + path.parent.path for path in places if isinstance(path, Remote)]
        inside = _common_folder(folders).strip("/")
        skipped = len(inside) + 1 if inside else 0
        top = next(path for path in places if isinstance(path, Remote))
        return SourceNames(
            str(Remote(top.top, inside)), tuple(_path_text(path)[skipped:] for path in places)
        )
    ends = iter(_distinct_ends(here))
    return SourceNames(
        None, tuple(next(ends) if isinstance(path, Path) else str(path) for path in places)
    )


def _distinct_ends(paths: Sequence[str]) -> tuple[str, ...]:
    """The last parts of each path, as few for all as tell every two apart."""
    parts = [Path(path).parts for path in paths]
    count = 1
    while len({part[-count:] for part in parts}) < len(set(parts)):
        count += 1
    return tuple("/".join(part[-count:]).lstrip("/") for part in parts)


def _common_folder(folders: Sequence[str]) -> str:
    return os.path.commonpath(folders) if folders else ""


def _path_text(place: Place) -> str:
    return place.path if isinstance(place, Remote) else str(place)
