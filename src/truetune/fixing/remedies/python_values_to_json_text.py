"""Writes values as JSON text, where the template would print them as Python does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from truetune.fixing.base_of_row_remedies import Attempt, Remedy, RowView, Stage
from truetune.fixing.remedies.reshape_rows_for_template import (
    FormChange,
    edits_arguments_to_text,
    join_text_parts,
    write_missing_content,
)

TEXT_CHANGES: tuple[FormChange, ...] = (
    join_text_parts,
    edits_arguments_to_text,
    write_missing_content,
)


class WriteAsText(Remedy):
    """Writes values as text: one kind of change alone first, then two together, and so on."""

    rule = "values-printed-as-python"
    what = "write as text what the template prints as Python"
    safe = True
    stage = Stage.TEMPLATE

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """Attempts with the kinds of change that the row has a use for: one, then two of them, and
        so on.
        """
        all_edits = {change: change(row) for change in TEXT_CHANGES}
        edits = {change: row_edits for change, row_edits in all_edits.items() if row_edits}
        for size in range(1, len(TEXT_CHANGES) + 1):
            for changes in combinations(edits, size):
                yield [edit for change in changes for edit in edits[change]]
