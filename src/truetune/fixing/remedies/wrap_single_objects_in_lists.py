"""One object where a list of objects stands elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from truetune.data.column_name_aliases import COLUMN_ALIASES
from truetune.fixing.remedy import Attempt, ProblemRemedy, RowView, Stage, combine_into_one_attempt
from truetune.fixing.row_edits import Edit, PutValue
from truetune.fixing.row_turns import parse_json_value


class ListSingleObjects(ProblemRemedy):
    """A single call, tool or document, without the list around it."""

    rule = "malformed-rows"
    what = "put a single call, tool or document into a list"
    safe = True
    stage = Stage.SHAPE
    kinds = ("bad-tool-call", "bad-column")

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """All of them in one attempt."""
        yield from combine_into_one_attempt(self._edits(row))

    def _edits(self, row: RowView) -> Iterator[Edit]:
        """Calls, tools and documents that stand alone, or as JSON text inside of a list."""
        for turn in row.turns:
            calls = turn.message.get("tool_calls")
            # One call without its list: what the model said is not in doubt.
            if isinstance(parse_json_value(calls), dict):
                yield self._listed(row, (*turn.path, "tool_calls"), calls)
            for index, call in enumerate(calls if isinstance(calls, list) else ()):
                if isinstance(call, str) and isinstance(parse_json_value(call), dict):
                    yield PutValue((*turn.path, "tool_calls", index), parse_json_value(call), call)
        for column in row.value:
            if column in (*COLUMN_ALIASES["tools"], *COLUMN_ALIASES["documents"]) and isinstance(
                parse_json_value(row.value[column]), dict
            ):
                yield self._listed(row, (column,), row.value[column])

    def _listed(self, row: RowView, path: tuple[str | int, ...], value: object) -> PutValue:
        """The object in a list, spelled as it was."""
        if isinstance(value, str):
            # JSON text stays JSON text: the column's type is that of the whole file.
            return PutValue(path, f"[{value}]")
        return PutValue(path, [value], f"[{row.json_text_at(path)}]")
