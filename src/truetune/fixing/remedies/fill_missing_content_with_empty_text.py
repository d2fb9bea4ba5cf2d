"""Writes an empty text into turns without content, where emptiness says all: a system turn, a tool
that returned nothing, bare reasoning.
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.fixing.base_of_row_remedies import (
    Attempt,
    ProblemRemedy,
    RowView,
    Stage,
    combine_into_one_attempt,
)
from truetune.fixing.remedies.rename_role_aliases import standard_role_of_name
from truetune.fixing.row_edits import Edit, PutValue
from truetune.fixing.row_messages_with_paths import Turn
from truetune.render.template import REASONING_KEYS

# An empty answer teaches silence, and an empty question asks nothing: those are faults of the data.
MAY_BE_EMPTY = ("system", "developer", "tool", "function", "ipython")


class WriteEmptyContent(ProblemRemedy):
    """Writes empty content. A question or answer that is not there is no empty one: such rows are
    left, or dropped with `--unsafe`.
    """

    rule = "malformed-rows"
    what = "write empty content of system turns, tool results and bare reasoning as empty text"
    safe = True
    stage = Stage.SHAPE
    kinds = ("no-content",)

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """One attempt that writes an empty text as the content of each turn that may be empty and
        has none.
        """
        yield from combine_into_one_attempt(
            edit for turn in row.turns for edit in _edits_of_turn(turn)
        )


def _edits_of_turn(turn: Turn) -> Iterator[Edit]:
    """The edit that gives a turn an empty text as content, where it says something without one."""
    message = turn.message
    if turn.role_key is None:
        return
    if any(message.get(name) is not None for name in ("content", "value", "tool_calls")):
        return
    may_be_empty = standard_role_of_name(turn.role) in MAY_BE_EMPTY
    if may_be_empty or any(message.get(name) for name in REASONING_KEYS):
        # By the key that goes with the role's: readers take `from` with `value`.
        key = "value" if turn.role_key == "from" else "content"
        yield PutValue((*turn.path, key), "")
