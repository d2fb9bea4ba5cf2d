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
        if any(problem.kind in self.kinds for problem in row.conversation.problems):
            yield [DropRow()]


class _DropRow(Remedy):
    safe = False
    stage = Stage.ROW

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        yield [DropRow()]


class DropEmptyAnswers(_DropRow):
    rule = "wrong-field-mapped"
    what = "drop rows with an empty answer"

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        conversation = row.conversation
        answers = [m.get("content") for m in conversation.messages if m.get("role") == "assistant"][
            -1:
        ]
        if not conversation.is_chat:
            answers = [conversation.completion] if conversation.text is None else []
        if answers and not str(answers[0] or "").strip():
            yield [DropRow()]


class DropUntaughtRows(_DropRow):
    rule = "no-supervised-token"
    what = "drop rows without a supervised token"

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        if not row.supervised and row.rejected is None:
            yield [DropRow()]


class DropForgedRows(_DropRow):
    rule = "special-token-in-structure"
    what = "drop rows with control tokens in roles, keys or variables"


class DropEqualPairs(_DropRow):
    rule = "preference-pairs-identical"
    what = "drop pairs whose answers are the same"

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        chosen = (
            row.conversation.messages[row.conversation.prompt_messages or 0 :]
            or row.conversation.completion
        )
        if row.conversation.rejected is not None and chosen == row.conversation.rejected:
            yield [DropRow()]


class DropOneSidedPairs(_DropRow):
    rule = "rejected-side-empty"
    what = "drop pairs whose rejected answer is empty"


class DropRejectedRows(_DropRow):
    rule = "template-rejects-rows"
    what = "drop rows that the template refuses"

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        if row.rejected is not None:
            yield [DropRow()]

    def measure(self, judged: JudgedRows) -> int:
        return len(judged.rejected)
