"""Drops rows that no edit can fix: without an answer, with nothing in the loss, with a control token in a role or a
key, refused by the template, or pairs without two different answers.
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.fixing.base_of_row_remedies import Attempt, ProblemRemedy, Remedy, RowView, Stage
from truetune.fixing.judge_rows_before_and_after_edits import JudgedRows
from truetune.fixing.row_edits import DropRow


class DropHollowRows(ProblemRemedy):
    """Drops rows whose messages are none, or that lack a question or an answer."""

    rule = "malformed-rows"
    what = "drop rows without messages or content"
    safe = False
    stage = Stage.ROW
    kinds = ("empty", "no-content", "no-format", "not-messages")

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """An attempt that drops a row with one of these problems."""
        if any(problem.kind in self.kinds for problem in row.conversation.problems):
            yield [DropRow()]


class _DropRow(Remedy):
    """Drops every row in which its rule finds something; the base of the remedies below."""

    safe = False
    stage = Stage.ROW

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """An attempt that drops the row. The rule's own count proves that the row was the fault."""
        yield [DropRow()]


class DropEmptyAnswers(_DropRow):
    """Drops rows whose last answer is empty, so that the model would learn to say nothing."""

    rule = "answer-is-empty"
    what = "drop rows with an empty answer"

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """An attempt that drops a row whose last answer has no text."""
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
    """Drops rows of which nothing is in the loss: they only cost time."""

    rule = "no-supervised-token"
    what = "drop rows without a supervised token"

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """An attempt that drops a row without a supervised token, unless the template refused it."""
        # A refused row has no token either; another remedy says why.
        if not row.supervised and row.rejected is None:
            yield [DropRow()]


class DropForgedRows(_DropRow):
    """Drops rows with a control token in a role or a key, which breaks the structure of the prompt."""

    rule = "special-token-in-structure"
    what = "drop rows with control tokens in roles, keys or variables"


class DropEqualPairs(_DropRow):
    """Drops pairs of two equal answers, which have no preference to learn."""

    rule = "preference-pairs-identical"
    what = "drop pairs whose answers are the same"

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """An attempt that drops a pair whose sides are the same."""
        chosen = (
            row.conversation.messages[row.conversation.prompt_messages or 0 :]
            or row.conversation.completion
        )
        if row.conversation.rejected is not None and chosen == row.conversation.rejected:
            yield [DropRow()]


class DropOneSidedPairs(_DropRow):
    """Drops pairs with an empty rejected answer, which teach to write anything at all."""

    rule = "rejected-side-empty"
    what = "drop pairs whose rejected answer is empty"


class DropRefusedRows(_DropRow):
    """Drops rows on which the template raises, and that no other remedy made it take."""

    rule = "template-rejects-rows"
    what = "drop rows on which the template raises"

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        """An attempt that drops a row which the template refuses."""
        if row.rejected is not None:
            yield [DropRow()]

    def count_faults(self, judged_rows: JudgedRows) -> int:
        """How many rows the template refuses; the rule's own count may group them."""
        return len(judged_rows.template_refusal_reason_by_row)
