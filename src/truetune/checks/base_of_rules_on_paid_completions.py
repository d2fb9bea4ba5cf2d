"""The base of rules on completions that a reward function pays as it pays the right answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from truetune.checks.findings import Finding
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.reward.cases_of_scored_completions import cases_of_tried, paid_of, rows_of
from truetune.checks.rule import RewardRule
from truetune.generation.reward_trial import AttackKind, TriedCompletion
from truetune.settings.run_spec import Severity

# Chosen, not measured: one row of many may be paid by chance, as where a question ends in its own answer.
MIN_ERROR_SHARE = 0.1
"""Share of the rows from which on a finding is as grave as the rule"""

# Chosen, not measured: a small bonus for a mention helps a policy to begin, and a quarter is worth to be had alone.
MIN_WARNING_PART = 0.25
"""Of the reward: from which on a part of it for a mention of the answer is a warning"""


class PaidCompletionRule(RewardRule):
    """Fires where completions of some kinds are paid as the right answer of their row is."""

    of_paid_answers = True

    kinds: ClassVar[tuple[AttackKind, ...]]
    """Which completions"""
    what_it_pays_for: ClassVar[str]
    """The paid completions in words: `answers that say nothing`"""
    remedy: ClassVar[str]
    counted: ClassVar[str]
    """What the figure counts: `empty completions that are paid`"""
    part_kind: ClassVar[AttackKind | None] = None
    """Completions that it fires on as well where they get a part of the reward, as each mention of the answer does"""
    min_share: ClassVar[float] = 0.0
    """Share of the rows that must be paid, for chance is no fault"""

    def measurement_if_clean(self) -> Measurement:
        """How many of the completions are paid."""
        tried_completions = self.subject.tried_of_kinds(*self.kinds)
        return make_count_measurement(
            self.counted, len(paid_of(tried_completions)), len(tried_completions)
        )

    def findings(self) -> Iterator[Finding]:
        """The finding on completions of these kinds that are paid."""
        tried_completions = self.subject.tried_of_kinds(*self.kinds)
        paid = paid_of(tried_completions)
        if not paid or rows_of(paid) < self.min_share * rows_of(tried_completions):
            yield from self._finding_on_part_of_pay(tried_completions)
            return
        yield self.finding(
            f"{self.subject.name} pays for {self.what_it_pays_for}, in {rows_of(paid):,} of"
            f" {rows_of(tried_completions):,} rows",
            self.remedy,
            severity=self.severity_of(paid, rows_of(paid) / rows_of(tried_completions)),
            evidence=self.evidence(),
            cases=cases_of_tried(paid),
            count=rows_of(paid),
            total=rows_of(tried_completions),
        )

    def _finding_on_part_of_pay(self, tried: Sequence[TriedCompletion]) -> Iterator[Finding]:
        """The finding that such completions get a part of the reward, in a tenth of the rows and more."""
        if self.part_kind is None:
            return
        parts = self.subject.paid_in_part(self.part_kind)
        completions = [one for one, _ in parts]
        if not parts or rows_of(completions) < MIN_ERROR_SHARE * rows_of(tried):
            return
        share = max(share for _, share in parts)
        yield self.finding(
            f"{self.subject.name} gives {share:.0%} of the reward for {self.what_it_pays_for}, in"
            f" {rows_of(completions):,} of {rows_of(tried):,} rows",
            self.remedy,
            severity="warning" if share >= MIN_WARNING_PART else "info",
            evidence=[
                "each text gets it that mentions the right answer, whatever it gives as its own"
            ],
            cases=cases_of_tried(completions),
            count=rows_of(completions),
            total=rows_of(tried),
        )

    def evidence(self) -> Iterator[str]:
        """What else bears on it; nothing, unless a rule says so."""
        yield from ()

    def severity_of(self, paid: Sequence[TriedCompletion], share: float) -> Severity:
        """How grave it is, by what is paid and in which share of the rows."""
        if self.severity == "error" and share < MIN_ERROR_SHARE:
            return "warning"
        return self.severity
