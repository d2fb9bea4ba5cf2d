"""Halves of surrogate pairs, which no tokenizer can hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from truetune.fixing.remedy import Attempt, ProblemRemedy, RowView, Stage, one
from truetune.fixing.row_edits import Edit, Path, Put, Rename
from truetune.fixing.row_turns import loaded

HALF = re.compile("[\ud800-\udfff]")


class ReplaceHalfSurrogates(ProblemRemedy):
    """What truetune reads in their place, and other readers fail on."""

    rule = "malformed-rows"
    what = "write U+FFFD for half of a surrogate pair"
    safe = True
    stage = Stage.TEXT
    kinds = ("lone-surrogate",)

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        yield from one(_edits(row.value, ()))


def _edits(value: Any, path: Path) -> Iterator[Edit]:
    """Of values first, then of the keys that lead to them."""
    if isinstance(value, str):
        inner = loaded(value)
        if HALF.search(value):
            yield Put(path, HALF.sub("\ufffd", value))
        elif inner is not value:
            yield from _edits(inner, path)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _edits(item, (*path, key))
            if HALF.search(key):
                yield Rename((*path, key), HALF.sub("\ufffd", key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _edits(item, (*path, index))
