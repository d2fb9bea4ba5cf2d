"""Runs the rules on data while rows are read: each sees every batch, and one that fails leaves the others at work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from truetune.checks.judgement import Judgement, NotJudged, Unmet
from truetune.checks.rule import DataRule, Setup
from truetune.checks.rule_runner import (
    conclude_rule,
    merge_explained_findings_into_causes,
    not_judged_since_failed,
)
from truetune.data.conversation import Conversation, Origin
from truetune.encoding.batch import Batch
from truetune.errors import DataError, TruetuneError

P = ParamSpec("P")
T = TypeVar("T")

# Chosen, not measured: a broken beginning of a data set is shorter, and a binary file is given up within
# milliseconds.
GIVE_UP = 1_000
"""Where so many lines at the beginning hold no row, the file is none of rows: it can't be read"""
NO_ROWS = Unmet("no row was read", "name DATA as well")
NO_EVALUATION = Unmet("no evaluation data are named", "name them with --eval-data")
NO_EVALUATION_ROWS = Unmet(
    "the evaluation data hold no row", "name the file that holds them", asked=True
)
CORRECT_LINES = "correct these lines, or remove them"


@dataclass(slots=True)
class BrokenLines:
    """Lines of some data that hold no row: how many, and the first."""

    what: str
    count: int = 0
    first: tuple[Origin, str] | None = None

    def add_line(self, origin: Origin, reason: str) -> None:
        """Count one more line that holds no row; the reason begins with its place."""
        self.count += 1
        self.first = self.first or (origin, reason)

    def as_not_judged(self) -> Judgement:
        """A judgement that these lines were not judged; empty if there are none."""
        if self.first is None:
            return Judgement()
        origin, reason = self.first
        what = f"{self.count:,} broken line{'s' * (self.count != 1)}{self.what}"
        cause = reason.removeprefix(f"{origin.file}:{origin.line}: ")
        return Judgement(
            not_judged=(
                NotJudged(what, cause, place=f"{origin.file}:{origin.line}", unlock=CORRECT_LINES),
            )
        )


class DataRules:
    """Rules of these classes on one set of data."""

    def __init__(self, kinds: Iterable[type[DataRule]], setup: Setup) -> None:
        self.setup = setup
        self.failed: dict[type[DataRule], NotJudged] = {}
        self.rules: list[DataRule] = []
        self.rows = self.evaluation_rows = 0
        self.broken = BrokenLines("")
        for kind in kinds:
            rule = self._call_or_drop_rule(kind, kind, setup)
            if rule is not None:
                self.rules.append(rule)

    def give_evaluation_rows_to_rules(
        self, open_rows: Callable[[], Iterator[Conversation]]
    ) -> None:
        """Let the rules that compare with evaluation data read its rows.

        Raises DataError if they can't be read.
        """
        for rule in list(self.rules):
            if does_rule_read_evaluation_rows(type(rule)):
                self._call_or_drop_rule(
                    type(rule), self._give_evaluation_rows_to_rule, rule, open_rows
                )

    def _give_evaluation_rows_to_rule(
        self, rule: DataRule, open_rows: Callable[[], Iterator[Conversation]]
    ) -> None:
        """Give one rule the rows of the evaluation data, opened again for it."""
        rule.evaluation(self._pass_through_and_count_rows(open_rows()))

    def _pass_through_and_count_rows(self, rows: Iterable[Conversation]) -> Iterator[Conversation]:
        """The rows as they are, counted; each rule reads all of them."""
        self.evaluation_rows = 0
        for row in rows:
            self.evaluation_rows += 1
            yield row

    def judge_batch(self, batch: Batch) -> None:
        """Hand the next rows to every rule."""
        self.rows += len(batch.rows)
        for rule in list(self.rules):
            self._call_or_drop_rule(type(rule), rule.add_batch, batch)

    def report_broken_line(self, origin: Origin, reason: str) -> None:
        """Hand a line that holds no row to the rules.

        Raises DataError if no line before it held a row either: it is no file of rows.
        """
        self.broken.add_line(origin, reason)
        if not self.rows and self.broken.count == GIVE_UP:
            self.raise_if_all_broken()
        # A copy: a rule that fails is taken out of the list while it is gone through.
        for rule in list(self.rules):
            self._call_or_drop_rule(type(rule), rule.broken_line, origin, reason)

    def raise_if_all_broken(self) -> None:
        """Raise DataError if there are lines, and none holds a row."""
        if self.broken.first is not None and not self.rows:
            raise DataError(self.broken.first[1])

    def judgement(self) -> Judgement:
        """What the rules say of all that they have seen; asked for last, for what failed before is part of it."""
        parts = [self._conclude_rule(rule) for rule in self.rules]
        parts += [Judgement(not_judged=(failed,)) for failed in self.failed.values()]
        if not any(does_rule_report_broken_lines(type(rule)) for rule in self.rules):
            parts.append(self.broken.as_not_judged())
        return merge_explained_findings_into_causes(
            Judgement.of(parts), [type(rule) for rule in self.rules]
        )

    def report_data(self) -> dict[str, Any]:
        """Figures of all rules, by name."""
        data: dict[str, Any] = {}
        for rule in list(self.rules):
            data |= self._call_or_drop_rule(type(rule), rule.report_data) or {}
        return data

    def _conclude_rule(self, rule: DataRule) -> Judgement:
        """The judgement of one rule after the last batch."""
        return conclude_rule(rule, rule.setup.trainer, self._what_data_lacks(type(rule)))

    def _what_data_lacks(self, kind: type[DataRule]) -> Unmet | None:
        """What of the data this rule would have needed, by the methods that it has."""
        if does_rule_need_rows(kind) and not self.rows:
            return NO_ROWS
        needs_evaluation = (
            does_rule_read_evaluation_rows(kind) and not kind.judges_without_evaluation
        )
        if needs_evaluation and not self.evaluation_rows:
            return NO_EVALUATION_ROWS if self.setup.spec.eval_data else NO_EVALUATION
        return None

    def _call_or_drop_rule(
        self, kind: type[DataRule], function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """Call a rule's function and return its result; None if it raises, and then the rule is
        left out from there on.
        """
        try:
            return function(*args, **kwargs)
        # An error of ours is about the input, and stops the check for every rule; any other is a fault of this rule
        # alone.
        except TruetuneError:
            raise
        except Exception as error:
            self.failed[kind] = not_judged_since_failed(kind, error)
            self.rules = [rule for rule in self.rules if type(rule) is not kind]
            return None


def does_rule_need_rows(kind: type[DataRule]) -> bool:
    """Does the rule need rows, or only tokenizer and template?"""
    return kind.add_batch is not DataRule.add_batch and not kind.judges_without_rows


def does_rule_read_evaluation_rows(kind: type[DataRule]) -> bool:
    """Does the rule compare with evaluation data?"""
    return kind.evaluation is not DataRule.evaluation


def does_rule_report_broken_lines(kind: type[DataRule]) -> bool:
    """Does the rule report lines that hold no row?"""
    return kind.broken_line is not DataRule.broken_line
