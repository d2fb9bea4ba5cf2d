"""What a name that is not known was meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from os import PathLike
from pathlib import Path


def near(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]}?" if found else ""


def near_path(path: str | PathLike[str]) -> str:
    """`; did you mean PATH?` where a file or folder with nearly that name lies in the same folder."""
    where = Path(path).expanduser()
    try:
        siblings = [entry.name for entry in where.parent.iterdir()]
    except OSError:
        return ""
    found = difflib.get_close_matches(where.name, siblings, n=1)
    return f"; did you mean {where.parent / found[0]}?" if found else ""
