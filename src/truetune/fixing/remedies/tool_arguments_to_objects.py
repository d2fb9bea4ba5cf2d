"""Makes objects of tool-call arguments that are JSON in a string, where the template would write
their quotes once more.
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.fixing.base_of_row_remedies import (
    Attempt,
    Remedy,
    RowView,
    Stage,
    combine_into_one_attempt,
)
from truetune.fixing.remedies.reshape_rows_for_template import (
    edits_arguments_of_turn_to_objects,
    json_of_object_in_string,
)
from truetune.fixing.row_edits import Edit


class MakeArgumentsObjects(Remedy):
    """Makes objects of arguments that are kept in a string."""

    rule = "tool-arguments-double-encoded"
    what = "make arguments objects, where the template writes a string in JSON"
    safe = True
    stage = Stage.TEMPLATE

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """One attempt that makes objects of the arguments of all calls of the row."""
        yield from combine_into_one_attempt(self._edits_to_objects(row))

    def _edits_to_objects(self, row: RowView) -> Iterator[Edit]:
        """Edits that make an object of the arguments of each call; of those that are none, a note."""
        for turn in row.turns:
            yield from edits_arguments_of_turn_to_objects(turn)
            for _, call in turn.tool_calls:
                arguments = call.get("arguments")
                # Left to a person: text that is no JSON may have lost its end, or be another tool's
                # form.
                if isinstance(arguments, str) and json_of_object_in_string(arguments) is None:
                    row.notes.append("arguments are no JSON object; correct them yourself")
