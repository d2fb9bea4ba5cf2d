"""Tries the remedies on a group of rows, and makes those edits that are proved to help.

Proof, on the row itself: the rule finds less in it after the edit; the reader names no new problem; the template
refuses no row that it took before, and none loses all that it taught. Rows are proved together, and halved where the
proof of a group fails, so that one row that can't be fixed costs a few more renderings and the others nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from truetune.checks.judgement import NotJudged
from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import not_judged_since_failed
from truetune.data.conversation import Conversation, Origin
from truetune.data.parse_json_columns import LONE_SURROGATE, duplicate_key_problem
from truetune.errors import TruetuneError
from truetune.fixing.base_of_row_remedies import (
    Attempt,
    Remedy,
    RemedyContext,
    RowView,
    count_reader_problems,
)
from truetune.fixing.editable_row_of_file import RowBody
from truetune.fixing.judge_rows_before_and_after_edits import JudgedRows, RowJudge
from truetune.fixing.row_edits import (
    DropRow,
    Edit,
    EditError,
    PutValue,
    RemoveRepeatedKey,
    RenameKey,
    ValuePath,
    value_at_path,
)

# Chosen, not measured: the template's forms alone give 95 combinations, the smaller ones first;
# those of a row that can be changed in five ways are 31, and fit.
MAX_ATTEMPTS = 40
"""Ways that are tried for one remedy on one row"""


class MadeChange(NamedTuple):
    """One edit that was made."""

    origin: Origin
    rule: str
    what: str
    path: ValuePath
    before: Any
    after: Any


@dataclass
class FixRow:
    """A row that remedies are tried on, with what was done to it."""

    origin: Origin
    body: RowBody
    conversation: Conversation
    changes: list[MadeChange] = field(default_factory=list)
    dropped: bool = False


class _Candidate(NamedTuple):
    """A row as it would be after an attempt that is not proved yet."""

    row: FixRow
    edits: Attempt
    body: RowBody | None
    conversation: Conversation | None
    """None where the row goes"""


@dataclass
class UnfixedCount:
    """How many rows a remedy could not, or may not, fix."""

    rows: int = 0
    first: Origin | None = None

    def add(self, origin: Origin) -> None:
        """Count a row."""
        self.rows += 1
        self.first = self.first or origin


class Fixer:
    """Tries remedies on groups of rows, and counts what it did."""

    def __init__(
        self,
        context: RemedyContext,
        judge: RowJudge,
        applied: Sequence[Remedy],
        offered: Sequence[Remedy],
    ) -> None:
        """Prepare a pass over rows.

        Args:
            context: what remedies may know before the first row.
            judge: by which edits are proved.
            applied: the remedies whose edits are made, in this order.
            offered: those of which it is only counted in which rows they would help.
        """
        self._context, self._judge = context, judge
        self._applied, self._offered = applied, offered
        self.changed: Counter[tuple[str, str]] = Counter()
        """(rule, what was done) -> rows"""
        self.offers: dict[tuple[str, str], UnfixedCount] = {}
        """(rule, what would be done) -> rows"""
        self.refused: dict[tuple[str, str], UnfixedCount] = {}
        """(rule, why an edit could not be made) -> rows"""
        self._failures: dict[Remedy, NotJudged] = {}

    def __call__(self, rows: list[FixRow]) -> JudgedRows:
        """Fix these rows in place; gives what is left of them, as a check sees it."""
        judged_rows = self._judge_rows(rows)
        for remedy in self._applied:
            proved = self._prove_or_exclude(remedy, rows, judged_rows)
            for candidate in proved:
                self._make_and_note_edits(remedy, candidate)
            if proved:
                # The next remedy must see the rows as they are now: one edit may end two faults.
                judged_rows = self._judge_rows(rows)
        for remedy in self._offered:
            for candidate in self._prove_or_exclude(remedy, rows, judged_rows):
                offers = self.offers.setdefault((remedy.rule, remedy.what), UnfixedCount())
                offers.add(candidate.row.origin)
        self._judge.forget_renderings()
        return judged_rows

    @property
    def failed(self) -> tuple[NotJudged, ...]:
        """Remedies that raised an error, each once, as what could not be judged."""
        return tuple(self._failures.values())

    def _prove_or_exclude(
        self, remedy: Remedy, rows: list[FixRow], judged_rows: JudgedRows
    ) -> list[_Candidate]:
        """As `_prove_first_attempt`; a remedy that fails, or whose rule does, is excluded, and the
        others stand.
        """
        if remedy in self._failures:
            return []
        try:
            return self._prove_first_attempt(remedy, rows, judged_rows)
        except TruetuneError:
            raise
        except Exception as error:
            # A mistake in one remedy, or in its rule, must not cost the user all other fixes.
            self._failures[remedy] = not_judged_since_failed(find_rule(remedy.rule), error)
            return []

    def _judge_rows(self, rows: Iterable[FixRow]) -> JudgedRows:
        """The rows that are not dropped, as a check would judge them now."""
        return self._judge([row.conversation for row in rows if not row.dropped])

    def _prove_first_attempt(
        self, remedy: Remedy, rows: list[FixRow], judged_rows: JudgedRows
    ) -> list[_Candidate]:
        """The rows after the first attempt of a remedy that is proved to help, in order; other rows
        are left out.
        """
        # Nearly all remedies end here: one measure of the whole group, and no row is looked at.
        if remedy.proved_by_rule and not remedy.count_faults(judged_rows):
            return []
        views = self._make_views(rows, judged_rows)
        attempts_of_rows = [(row, iter(remedy.attempts(view))) for row, view in views]
        proved: dict[int, _Candidate] = {}
        for _ in range(MAX_ATTEMPTS):
            candidates = self._next_candidates(remedy, attempts_of_rows, proved)
            if not candidates:
                break
            for candidate in self._keep_proved_by_halves(remedy, candidates):
                proved[candidate.row.origin.row] = candidate
        for row, view in views:
            for note in view.notes:
                self.refused.setdefault((remedy.rule, note), UnfixedCount()).add(row.origin)
        return [proved[number] for number in sorted(proved)]

    def _next_candidates(
        self,
        remedy: Remedy,
        attempts_of_rows: Iterable[tuple[FixRow, Iterator[Attempt]]],
        proved: Mapping[int, _Candidate],
    ) -> list[_Candidate]:
        """The next attempt for each row that none has helped yet: they are proved together, which
        is one rendering a row.
        """
        candidates = []
        for row, attempts in attempts_of_rows:
            if row.origin.row in proved:
                continue
            candidate = self._next_candidate(remedy, row, attempts)
            if candidate is not None:
                candidates.append(candidate)
        return candidates

    def _make_views(
        self, rows: list[FixRow], judged_rows: JudgedRows
    ) -> list[tuple[FixRow, RowView]]:
        """The rows that are not dropped, as remedies see them."""
        views = []
        rejected, supervised = (
            judged_rows.template_refusal_reason_by_row,
            judged_rows.supervised_token_count_by_row(),
        )
        prints = judged_rows.batch.fingerprints
        alive = [row for row in rows if not row.dropped]
        for place, row in enumerate(alive):
            # By number: rows that are dropped are in the group, and not in the batch.
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
            views.append((row, view))
        return views

    def _next_candidate(
        self, remedy: Remedy, row: FixRow, attempts: Iterator[Attempt]
    ) -> _Candidate | None:
        """The row after the next attempt that can be made at all."""
        for edits in attempts:
            if any(isinstance(edit, DropRow) for edit in edits):
                return _Candidate(row, edits, None, None)
            try:
                return _Candidate(row, edits, *_apply_edits(row, edits))
            except EditError as error:
                # Counted, for a row that no remedy can reach is one that a person has to look at.
                self.refused.setdefault((remedy.rule, str(error)), UnfixedCount()).add(row.origin)
        return None

    def _keep_proved_by_halves(
        self, remedy: Remedy, candidates: list[_Candidate]
    ) -> list[_Candidate]:
        """Those of some attempts that are proved: all together, or else each half by itself."""
        if not remedy.proved_by_rule:
            return candidates
        before = self._judge([attempt.row.conversation for attempt in candidates])
        count = remedy.count_faults(before)
        if not count:
            return []
        is_single = len(candidates) == 1
        # A group is proved together only where each row can have a place of the fault. Rows that go
        # are proved one by one: taking some out always lessens the fault.
        may_prove_together = count >= len(candidates) and candidates[0].conversation is not None
        if is_single or may_prove_together:
            if self._do_attempts_end_fault(remedy, candidates, before, count):
                return candidates
        if is_single:
            return []
        half = len(candidates) // 2
        first, second = candidates[:half], candidates[half:]
        return self._keep_proved_by_halves(remedy, first) + self._keep_proved_by_halves(
            remedy, second
        )

    def _do_attempts_end_fault(
        self, remedy: Remedy, candidates: list[_Candidate], before: JudgedRows, count: int
    ) -> bool:
        """Do these attempts end the fault in each row? Of one row, less of it will do."""
        kept = [attempt.conversation for attempt in candidates if attempt.conversation is not None]
        if not kept:
            return True
        after = self._judge(kept)
        left = remedy.count_faults(after)
        # Less in a group may be one row fixed and another untouched: only none proves each of them.
        is_less = left < count if len(candidates) == 1 else left == 0
        return is_less and _is_harmless(before, after)

    def _make_and_note_edits(self, remedy: Remedy, candidate: _Candidate) -> None:
        """Make the edits of an attempt that is proved, and note each."""
        row = candidate.row
        self.changed[remedy.rule, remedy.what] += 1
        if candidate.body is None or candidate.conversation is None:
            row.changes.append(
                MadeChange(row.origin, remedy.rule, remedy.what, (), row.body.value, None)
            )
            row.dropped = True
            return
        for edit in candidate.edits:
            row.changes.append(_record_change(remedy, row, edit, candidate.body))
        row.body, row.conversation = candidate.body, candidate.conversation


def _is_harmless(before: JudgedRows, after: JudgedRows) -> bool:
    """Did edits make nothing worse: does the reader find no more problems, the template refuse no
    more rows, and each row teach what it holds?

    A row that a template refuses is a loud fault. A row that it takes without writing the tool call is
    a silent one, and worse.
    """
    if count_reader_problems(after.batch) > count_reader_problems(before.batch):
        return False
    if len(after.template_refusal_reason_by_row) > len(before.template_refusal_reason_by_row):
        return False
    if after.count_turns_with_lost_content() > before.count_turns_with_lost_content():
        return False
    # Rows that teach, not tokens: an edit may rightly shorten an answer, and must not empty it.
    teaching = sum(map(bool, before.supervised_token_count_by_row().values()))
    return sum(map(bool, after.supervised_token_count_by_row().values())) >= teaching


def _apply_edits(row: FixRow, edits: Attempt) -> tuple[RowBody, Conversation]:
    """(body, conversation) of a row after some edits, as the reader makes it. Raises EditError."""
    body = row.body
    for edit in edits:
        body = body.edited(edit)
    return body, read_edited_body(body, row.conversation)


def read_edited_body(body: RowBody, like: Conversation) -> Conversation:
    """What the reader of a row's file makes of a body of it. Raises EditError."""
    assert like.read is not None
    try:
        reading = body.read()
    except ValueError as error:
        raise EditError(str(error)) from None
    # The reader of the row's own file: an edit must not make it a row of another format in silence.
    conversation = like.read(reading.row, like.origin)
    conversation.raw, conversation.read = reading.row, like.read
    if reading.surrogates_replaced:
        conversation.problems = (*conversation.problems, LONE_SURROGATE)
    if reading.duplicate_key is not None:
        conversation.problems = (
            *conversation.problems,
            duplicate_key_problem(reading.duplicate_key),
        )
    return conversation


def _record_change(remedy: Remedy, row: FixRow, edit: Edit, after: RowBody) -> MadeChange:
    """The record of an edit: what was there before and is there now."""
    before = value_at_path(row.body.value, edit.path)
    return MadeChange(
        row.origin, remedy.rule, remedy.what, edit.path, before, _value_after(edit, after)
    )


def _value_after(edit: Edit, after: RowBody) -> Any:
    """The value at the place of an edit afterwards; of a key that was renamed, the new key with its
    value.
    """
    if isinstance(edit, RenameKey):
        path = (*edit.path[:-1], edit.key)
        return {edit.key: value_at_path(after.value, path)}
    if isinstance(edit, PutValue):
        # Not read from the row: turns that an edit behind it removes may have moved the path.
        return edit.value
    return value_at_path(after.value, edit.path) if isinstance(edit, RemoveRepeatedKey) else None
