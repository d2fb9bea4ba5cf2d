"""Moves the text of a system turn into the first question, where the template refuses the system
turn.
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.fixing.base_of_row_remedies import Attempt, Remedy, RowView, Stage
from truetune.fixing.judge_rows_before_and_after_edits import JudgedRows
from truetune.fixing.row_edits import PutValue, RemoveEntry
from truetune.fixing.row_messages_with_paths import Turn


def _first_turn(row: RowView, *roles: str) -> Turn | None:
    """The first turn of one of these roles; None where there is none."""
    return next((turn for turn in row.turns if turn.role in roles), None)


class MoveSystemTurn(Remedy):
    """Puts the system text in front of the first question, as serving must then do as well."""

    rule = "template-rejects-rows"
    what = "put the system turn in front of the first question"
    safe = False
    stage = Stage.TEMPLATE

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """An attempt that puts the system text before the first question, with an empty line
        between, and removes the system turn.
        """
        system = _first_turn(row, "system", "developer")
        question = _first_turn(row, "user", "human")
        if row.rejected is None or system is None or question is None:
            return
        # Both in one list of messages: a system column is no turn, and stays.
        if len(system.path) < 2 or system.path[:-1] != question.path[:-1]:
            return
        key = "value" if question.role_key == "from" else "content"
        system_text, question_text = system.message.get(key), question.message.get(key)
        if isinstance(system_text, str) and isinstance(question_text, str):
            joined = f"{system_text}\n\n{question_text}" if system_text.strip() else question_text
            # The question first: once the system turn is gone, its path would lead to another turn.
            yield [PutValue((*question.path, key), joined), RemoveEntry(system.path)]

    def count_faults(self, judged_rows: JudgedRows) -> int:
        """How many rows the template refuses."""
        return len(judged_rows.template_refusal_reason_by_row)
