"""Arguments of tool calls that the template writes as a string in JSON."""

from __future__ import annotations

from collections.abc import Iterator

from truetune.fixing.remedies.reshape_rows_for_template import argument_objects, object_text
from truetune.fixing.remedy import Attempt, Remedy, RowView, Stage, combine_into_one_attempt
from truetune.fixing.row_edits import Edit


class MakeArgumentsObjects(Remedy):
    """Arguments that stand in a string, where the template writes its quotes once more."""

    rule = "tool-arguments-double-encoded"
    what = "make arguments objects, where the template writes a string in JSON"
    safe = True
    stage = Stage.TEMPLATE

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """All calls of the row in one attempt."""
        yield from combine_into_one_attempt(self._edits(row))

    def _edits(self, row: RowView) -> Iterator[Edit]:
        """The arguments of each call as an object; of those that are none, a note."""
        for turn in row.turns:
            yield from argument_objects(turn)
            for _, call in turn.tool_calls:
                arguments = call.get("arguments")
                # Left to a person: text that is no JSON may have lost its end, or be another tool's
                # form.
                if isinstance(arguments, str) and object_text(arguments) is None:
                    row.notes.append("arguments are no JSON object; correct them yourself")
