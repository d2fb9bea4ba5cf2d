"""Removes the prompt from the answers of pairs, where it is repeated at their beginning."""

from __future__ import annotations

from collections.abc import Iterator

from truetune.data.column_name_aliases import COLUMN_ALIASES
from truetune.fixing.base_of_row_remedies import (
    Attempt,
    Remedy,
    RowView,
    Stage,
    combine_into_one_attempt,
)
from truetune.fixing.row_edits import Edit, PutValue, RemoveEntry
from truetune.fixing.row_messages_with_paths import parse_json_list_or_object


class RemovePromptFromAnswers(Remedy):
    """Removes the prompt, which has its own column, from the beginning of both sides."""

    rule = "pair-prompt-not-shared"
    what = "take the prompt out of both answers"
    safe = True
    stage = Stage.SHAPE

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """One attempt that removes the prompt from the beginning of both sides."""
        columns = {
            name: next((a for a in COLUMN_ALIASES[name] if a in row.value), None)
            for name in ("prompt", "chosen", "rejected")
        }
        if None in columns.values():
            return
        prompt = parse_json_list_or_object(row.value[str(columns["prompt"])])
        sides = [str(columns["chosen"]), str(columns["rejected"])]
        edits = [
            self._edits_of_side(side, parse_json_list_or_object(row.value[side]), prompt)
            for side in sides
        ]
        # Both or neither: one side with the prompt and one without would differ in more than the
        # answer.
        if all(edits):
            yield from combine_into_one_attempt(edit for side in edits for edit in side)

    def _edits_of_side(self, column: str, side: object, prompt: object) -> list[Edit]:
        """Edits that remove the prompt from the beginning of a side; none where it does not begin
        with it.
        """
        if not prompt:
            return []
        if isinstance(side, str) and isinstance(prompt, str) and side.startswith(prompt):
            return [PutValue((column,), side.removeprefix(prompt))]
        if isinstance(side, list) and isinstance(prompt, list) and side[: len(prompt)] == prompt:
            # Always the first one: the others move up as it goes.
            return [RemoveEntry((column, 0)) for _ in prompt]
        return []
