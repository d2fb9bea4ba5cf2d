"""Fixer: tries the remedies on a group of rows, and makes those that are proved.

Proof, on the row itself: the rule finds less in it after the edit; the reader names no new problem; the template
refuses no row that it took before, and none loses all that it taught. Rows are proved together, and halved where the
proof of a group fails, so that one row that can't be fixed costs a few more renderings and the others nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from truetune.checks.catalogue import find
from truetune.checks.judgement import NotJudged
from truetune.checks.rule_runner import describe_failure
from truetune.data.conversation import Conversation, Origin
from truetune.data.json_text import LONE_SURROGATE, duplicate_key_problem
from truetune.errors import TruetuneError
from truetune.fixing.body import Body
from truetune.fixing.edits import Drop, Edit, EditError, Path, Put, RemoveRepeated, Rename, value_at
from truetune.fixing.judged import Judge, Judged
from truetune.fixing.remedy import Attempt, Context, Remedy, RowView, problems_of

MAX_ATTEMPTS = 40
"""Ways that are tried for one remedy on one row"""


class Change(NamedTuple):
    """One edit that was made."""

    origin: Origin
    rule: str
    what: str
    path: Path
    before: Any
    after: Any


@dataclass
class FixRow:
    """A row on its way through the remedies."""

    origin: Origin
    body: Body
    conversation: Conversation
    changes: list[Change] = field(default_factory=list)
    dropped: bool = False


class _Try(NamedTuple):
    """A row as it would be after an attempt."""

    row: FixRow
    edits: Attempt
    body: Body | None
    conversation: Conversation | None
    """None where the row goes"""


@dataclass
class Undone:
    """What a remedy could not, or may not, do."""

    rows: int = 0
    first: Origin | None = None

    def add(self, origin: Origin) -> None:
        """Count a row."""
        self.rows += 1
        self.first = self.first or origin


class Fixer:
    """Tries remedies on groups of rows, and counts what it did."""

    def __init__(
        self, context: Context, judge: Judge, made: Sequence[Remedy], offered: Sequence[Remedy]
    ) -> None:
        """`made` are the remedies that are applied; of those `offered` it is only counted which rows they would end."""
        self._context, self._judge = context, judge
        self._made, self._offered = made, offered
        self.changed: Counter[tuple[str, str]] = Counter()
        """(rule, what was done) -> rows"""
        self.offers: dict[tuple[str, str], Undone] = {}
        """(rule, what would be done) -> rows"""
        self.refused: dict[tuple[str, str], Undone] = {}
        """(rule, why an edit could not be made) -> rows"""
        self._failures: dict[Remedy, NotJudged] = {}

    def __call__(self, rows: list[FixRow]) -> Judged:
        """Fix these rows in place; gives what is left of them, as a check sees it."""
        judged = self._judged(rows)
        for remedy in self._made:
            proved = self._contained(remedy, rows, judged)
            for row, tried in proved:
                self._commit(remedy, row, tried)
            if proved:
                judged = self._judged(rows)
        for remedy in self._offered:
            for row, _ in self._contained(remedy, rows, judged):
                self.offers.setdefault((remedy.rule, remedy.what), Undone()).add(row.origin)
        self._judge.forget()
        return judged

    @property
    def failed(self) -> tuple[NotJudged, ...]:
        """Remedies that raised, each once"""
        return tuple(self._failures.values())

    def _contained(
        self, remedy: Remedy, rows: list[FixRow], judged: Judged
    ) -> list[tuple[FixRow, _Try]]:
        """As `_proved`; a remedy that fails, or whose rule does, is out, and the others stand."""
        if remedy in self._failures:
            return []
        try:
            return self._proved(remedy, rows, judged)
        except TruetuneError:
            raise
        except Exception as error:
            self._failures[remedy] = describe_failure(find(remedy.rule), error)
            return []

    def _judged(self, rows: Iterable[FixRow]) -> Judged:
        return self._judge([row.conversation for row in rows if not row.dropped])

    def _proved(
        self, remedy: Remedy, rows: list[FixRow], judged: Judged
    ) -> list[tuple[FixRow, _Try]]:
        """The rows in which an attempt of this remedy helps, with that attempt."""
        if remedy.proved_by_rule and not remedy.measure(judged):
            return []
        views = self._views(rows, judged)
        waiting = [(row, iter(remedy.attempts(view))) for row, view in views]
        found: dict[int, tuple[FixRow, _Try]] = {}
        for _ in range(MAX_ATTEMPTS):
            tried = []
            for row, attempts in waiting:
                if (
                    row.origin.row not in found
                    and (attempt := self._next(remedy, row, attempts)) is not None
                ):
                    tried.append(attempt)
            if not tried:
                break
            for proved in self._helping(remedy, tried):
                found[proved.row.origin.row] = (proved.row, proved)
        for row, view in views:
            for note in view.notes:
                self.refused.setdefault((remedy.rule, note), Undone()).add(row.origin)
        return [found[number] for number in sorted(found)]

    def _views(self, rows: list[FixRow], judged: Judged) -> list[tuple[FixRow, RowView]]:
        """The rows that stay, as remedies look at them."""
        found = []
        rejected, supervised = judged.rejected, judged.supervised()
        prints = judged.batch.fingerprints
        alive = [row for row in rows if not row.dropped]
        for place, row in enumerate(alive):
            number = row.origin.row
            view = RowView(
                row.body,
                row.conversation,
                self._context,
                rejected.get(number),
                supervised.get(number, 0),
                int(prints.exact[place]),
                int(prints.normal[place]),
            )
            found.append((row, view))
        return found

    def _next(self, remedy: Remedy, row: FixRow, attempts: Iterator[Attempt]) -> _Try | None:
        """The row after the next attempt that can be made at all."""
        for edits in attempts:
            if any(isinstance(edit, Drop) for edit in edits):
                return _Try(row, edits, None, None)
            try:
                return _Try(row, edits, *_edited(row, edits))
            except EditError as error:
                self.refused.setdefault((remedy.rule, str(error)), Undone()).add(row.origin)
        return None

    def _helping(self, remedy: Remedy, tried: list[_Try]) -> list[_Try]:
        """Those of some attempts that are proved."""
        if not remedy.proved_by_rule:
            return tried
        before = self._judge([attempt.row.conversation for attempt in tried])
        found = remedy.measure(before)
        if not found:
            return []
        if len(tried) == 1 or (found >= len(tried) and tried[0].conversation is not None):
            if self._is_proved(remedy, tried, before, found):
                return tried
        if len(tried) == 1:
            return []
        half = len(tried) // 2
        return self._helping(remedy, tried[:half]) + self._helping(remedy, tried[half:])

    def _is_proved(self, remedy: Remedy, tried: list[_Try], before: Judged, found: int) -> bool:
        """Do these attempts end the fault in each row? Of one row, less of it will do."""
        kept = [attempt.conversation for attempt in tried if attempt.conversation is not None]
        if not kept:
            return True
        after = self._judge(kept)
        left = remedy.measure(after)
        return (left < found if len(tried) == 1 else not left) and _harmless(before, after)

    def _commit(self, remedy: Remedy, row: FixRow, tried: _Try) -> None:
        self.changed[remedy.rule, remedy.what] += 1
        if tried.body is None or tried.conversation is None:
            row.changes.append(
                Change(row.origin, remedy.rule, remedy.what, (), row.body.value, None)
            )
            row.dropped = True
            return
        for edit in tried.edits:
            row.changes.append(_change(remedy, row, edit, tried.body))
        row.body, row.conversation = tried.body, tried.conversation


def _harmless(before: Judged, after: Judged) -> bool:
    """Does the reader find no more, the template refuse no more, and each row teach what it holds?

    A row that a template refuses is a loud fault. A row that it takes without writing the tool call is
    a silent one, and worse.
    """
    if problems_of(after.batch) > problems_of(before.batch) or len(after.rejected) > len(
        before.rejected
    ):
        return False
    if after.turns_that_teach_something_else() > before.turns_that_teach_something_else():
        return False
    teaching = sum(map(bool, before.supervised().values()))
    return sum(map(bool, after.supervised().values())) >= teaching


def _edited(row: FixRow, edits: Attempt) -> tuple[Body, Conversation]:
    """The row after some edits, and what the reader makes of it. Raises EditError."""
    body = row.body
    for edit in edits:
        body = body.edited(edit)
    return body, reread(body, row.conversation)


def reread(body: Body, like: Conversation) -> Conversation:
    """What the reader of a row's file makes of a body of it. Raises EditError."""
    assert like.read is not None
    try:
        found = body.read()
    except ValueError as error:
        raise EditError(str(error)) from None
    conversation = like.read(found.row, like.origin)
    conversation.raw, conversation.read = found.row, like.read
    if found.surrogates_replaced:
        conversation.problems = (*conversation.problems, LONE_SURROGATE)
    if found.duplicate_key is not None:
        conversation.problems = (*conversation.problems, duplicate_key_problem(found.duplicate_key))
    return conversation


def _change(remedy: Remedy, row: FixRow, edit: Edit, after: Body) -> Change:
    before = value_at(row.body.value, edit.path)
    return Change(
        row.origin, remedy.rule, remedy.what, edit.path, before, _value_after(edit, after)
    )


def _value_after(edit: Edit, after: Body) -> Any:
    """What stands there now; of a key that was renamed, the new key with its value."""
    if isinstance(edit, Rename):
        path = (*edit.path[:-1], edit.key)
        return {edit.key: value_at(after.value, path)}
    if isinstance(edit, Put):
        return edit.value  # turns that an edit behind it removes may have moved the path
    return value_at(after.value, edit.path) if isinstance(edit, RemoveRepeated) else None
