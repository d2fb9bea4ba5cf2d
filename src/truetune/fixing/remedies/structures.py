"""One object where a list of objects stands elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from truetune.data.columns import COLUMN_ALIASES
from truetune.fixing.remedy import Attempt, ProblemRemedy, RowView, Stage, one
from truetune.fixing.row_edits import Edit, Put
from truetune.fixing.row_turns import loaded


class ListSingleObjects(ProblemRemedy):
    """A single call, tool or document, without the list around it."""

    rule = "malformed-rows"
    what = "put a single call, tool or document into a list"
    safe = True
    stage = Stage.SHAPE
    kinds = ("bad-tool-call", "bad-column")

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        yield from one(self._edits(row))

    def _edits(self, row: RowView) -> Iterator[Edit]:
        for turn in row.turns:
            calls = turn.message.get("tool_calls")
            if isinstance(loaded(calls), dict):
                yield self._listed(row, (*turn.path, "tool_calls"), calls)
            for index, call in enumerate(calls if isinstance(calls, list) else ()):
                if isinstance(call, str) and isinstance(loaded(call), dict):
                    yield Put((*turn.path, "tool_calls", index), loaded(call), call)
        for column in row.value:
            if column in (*COLUMN_ALIASES["tools"], *COLUMN_ALIASES["documents"]) and isinstance(
                loaded(row.value[column]), dict
            ):
                yield self._listed(row, (column,), row.value[column])

    def _listed(self, row: RowView, path: tuple[str | int, ...], found: object) -> Put:
        if isinstance(found, str):
            return Put(path, f"[{found}]")
        return Put(path, [found], f"[{row.spelled(path)}]")
