"""Puts a list around a single call, tool or document, where readers take a list."""

from __future__ import annotations

from collections.abc import Iterator

from truetune.data.column_name_aliases import COLUMN_ALIASES
from truetune.fixing.base_of_row_remedies import (
    Attempt,
    ProblemRemedy,
    RowView,
    Stage,
    combine_into_one_attempt,
)
from truetune.fixing.row_edits import Edit, PutValue
from truetune.fixing.row_messages_with_paths import parse_json_list_or_object


class WrapSingleObjects(ProblemRemedy):
    """Puts a list around a single call, tool or document."""

    rule = "malformed-rows"
    what = "put a single call, tool or document into a list"
    safe = True
    stage = Stage.SHAPE
    kinds = ("bad-tool-call", "bad-column")

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """One attempt that puts a list around each single call, tool and document of the row."""
        yield from combine_into_one_attempt(self._edits_to_lists(row))

    def _edits_to_lists(self, row: RowView) -> Iterator[Edit]:
        """Edits for calls, tools and documents that are alone, or JSON text inside of a list."""
        for turn in row.turns:
            calls = turn.message.get("tool_calls")
            # One call without its list: what the model said is not in doubt.
            if isinstance(parse_json_list_or_object(calls), dict):
                yield self._edit_with_list(row, (*turn.path, "tool_calls"), calls)
            for index, call in enumerate(calls if isinstance(calls, list) else ()):
                if isinstance(call, str) and isinstance(parse_json_list_or_object(call), dict):
                    yield PutValue(
                        (*turn.path, "tool_calls", index), parse_json_list_or_object(call), call
                    )
        for column in row.value:
            if column in (*COLUMN_ALIASES["tools"], *COLUMN_ALIASES["documents"]) and isinstance(
                parse_json_list_or_object(row.value[column]), dict
            ):
                yield self._edit_with_list(row, (column,), row.value[column])

    def _edit_with_list(self, row: RowView, path: tuple[str | int, ...], value: object) -> PutValue:
        """The edit that puts a list around an object, spelled as it was."""
        if isinstance(value, str):
            # JSON text stays JSON text: the column's type is that of the whole file.
            return PutValue(path, f"[{value}]")
        return PutValue(path, [value], f"[{row.json_text_at(path)}]")
