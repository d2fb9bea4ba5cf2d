"""Rows that can teach nothing: no answer in them, or a pair without two answers."""

from __future__ import annotations

from collections.abc import Iterator

from truetune.fixing.remedy import Attempt, ProblemRemedy, Remedy, RowView, Stage
from truetune.fixing.row_edits import DropRow
from truetune.fixing.row_judge import JudgedRows


class DropHollowRows(ProblemRemedy):
    """Rows whose messages are none, or that lack a question or an answer."""

    rule = "malformed-rows"
    what = "drop rows without messages or content"
    safe = False
    stage = Stage.ROW
    kinds = ("empty", "no-content", "no-format", "not-messages")

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """Drop a row with one of these problems."""
        if any(problem.kind in self.kinds for problem in row.conversation.problems):
            yield [DropRow()]


class _DropRow(Remedy):
    """Drops every row in which its rule finds something."""

    safe = False
    stage = Stage.ROW

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """The rule's own measure proves that the row was the fault."""
        yield [DropRow()]


class DropEmptyAnswers(_DropRow):
    """The last answer is empty, so that the model learns to say nothing."""

    rule = "wrong-field-mapped"
    what = "drop rows with an empty answer"

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """Drop a row whose last answer has no text."""
        answer = _last_answer(row)
        if answer is not None and not answer.strip():
            yield [DropRow()]


def _last_answer(row: RowView) -> str | None:
    """The answer that a row ends with; None for plain text and chats without one."""
    conversation = row.conversation
    if conversation.is_chat:
        contents = [m.get("content") for m in conversation.messages if m.get("role") == "assistant"]
        return str(contents[-1] or "") if contents else None
    return str(conversation.completion or "") if conversation.text is None else None


class DropUntaughtRows(_DropRow):
    """Nothing of the row is in the loss: it only costs time."""

    rule = "no-supervised-token"
    what = "drop rows without a supervised token"

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """Drop a row without a supervised token, unless the template refused it."""
        # A refused row has no token either; another remedy says why.
        if not row.supervised and row.rejected is None:
            yield [DropRow()]


class DropForgedRows(_DropRow):
    """A token in a role or a key breaks the structure of the prompt."""

    rule = "special-token-in-structure"
    what = "drop rows with control tokens in roles, keys or variables"


class DropEqualPairs(_DropRow):
    """Two equal answers have no preference to learn."""

    rule = "preference-pairs-identical"
    what = "drop pairs whose answers are the same"

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """Drop a pair whose sides are the same."""
        chosen = (
            row.conversation.messages[row.conversation.prompt_messages or 0 :]
            or row.conversation.completion
        )
        if row.conversation.rejected is not None and chosen == row.conversation.rejected:
            yield [DropRow()]


class DropOneSidedPairs(_DropRow):
    """An empty rejected answer teaches to write anything at all."""

    rule = "rejected-side-empty"
    what = "drop pairs whose rejected answer is empty"


class DropRejectedRows(_DropRow):
    """Rows that no other remedy made the template take."""

    rule = "template-rejects-rows"
    what = "drop rows that the template refuses"

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """Drop a row that the template refuses."""
        if row.rejected is not None:
            yield [DropRow()]

    def count_faults(self, judged_rows: JudgedRows) -> int:
        """Rows that the template refuses; the rule's own count may group them."""
        return len(judged_rows.rejected)
