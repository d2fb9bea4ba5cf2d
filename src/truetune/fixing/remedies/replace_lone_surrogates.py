"""Replaces halves of surrogate pairs, which no tokenizer can hold, by the replacement character."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from truetune.fixing.base_of_row_remedies import (
    Attempt,
    ProblemRemedy,
    RowView,
    Stage,
    combine_into_one_attempt,
)
from truetune.fixing.row_edits import Edit, PutValue, RenameKey, ValuePath
from truetune.fixing.row_messages_with_paths import parse_json_list_or_object

HALF = re.compile("[\ud800-\udfff]")


class ReplaceLoneSurrogates(ProblemRemedy):
    """Replaces lone surrogates by the replacement character, which truetune reads in their place;
    other readers fail on them.
    """

    rule = "malformed-rows"
    what = "write U+FFFD for half of a surrogate pair"
    safe = True
    stage = Stage.TEXT
    kinds = ("lone-surrogate",)

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """One attempt that replaces the lone surrogates in all texts and keys of the row."""
        yield from combine_into_one_attempt(_edits_of_value(row.value, ()))


def _edits_of_value(value: Any, path: ValuePath) -> Iterator[Edit]:
    """Edits that replace half surrogates in values first, then in the keys that lead to them."""
    if isinstance(value, str):
        inner = parse_json_list_or_object(value)
        if HALF.search(value):
            yield PutValue(path, HALF.sub("\ufffd", value))
        elif inner is not value:
            yield from _edits_of_value(inner, path)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _edits_of_value(item, (*path, key))
            # Behind the values: their paths lead through the old key.
            if HALF.search(key):
                yield RenameKey((*path, key), HALF.sub("\ufffd", key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _edits_of_value(item, (*path, index))
