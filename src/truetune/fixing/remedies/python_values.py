"""Values that the template prints as Python would."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from truetune.fixing.remedies.template_form import (
    FormChange,
    arguments_as_text,
    join_text_parts,
    write_missing_content,
)
from truetune.fixing.remedy import Attempt, Remedy, RowView, Stage

TEXT_CHANGES: tuple[FormChange, ...] = (join_text_parts, arguments_as_text, write_missing_content)


class WriteAsText(Remedy):
    """One way alone first, then two together, and so on."""

    rule = "values-printed-as-python"
    what = "write as text what the template prints as Python"
    safe = True
    stage = Stage.TEMPLATE

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        edits = {way: found for way in TEXT_CHANGES if (found := way(row))}
        for size in range(1, len(TEXT_CHANGES) + 1):
            for ways in combinations(edits, size):
                yield [edit for way in ways for edit in edits[way]]
