"""KTO's labels contradict a score in the row: the answers labelled true have the worse scores.

## What it does
Compares KTO's labels (true and false) with a number that the rows have for each answer (`rating`, `score`, `reward`,
`rank`): how often does an answer with true have a better number than one with false? It fires if that is at most 35 %,
with at least six answers of each label.

## Why it is bad
The labels are swapped: KTO makes the worse answers more likely. Loss and margins look healthy, since the two kinds are
separated just as well. An inverted threshold is enough (`label = rating < 3`).

## Example
```yaml
data:
  - prompt: [{role: user, content: "Is it open?"}]
    completion: [{role: assistant, content: "Yes, until six in the evening."}]
    label: false
    rating: 5
  - prompt: [{role: user, content: "Is it open?"}]
    completion: [{role: assistant, content: "No idea, ask them."}]
    label: true
    rating: 1
  - prompt: [{role: user, content: "Where is the harbour?"}]
    completion: [{role: assistant, content: "Down the street, on the left."}]
    label: false
    rating: 4
  - prompt: [{role: user, content: "Where is the harbour?"}]
    completion: [{role: assistant, content: "Somewhere near the sea."}]
    label: true
    rating: 2
  - prompt: [{role: user, content: "What is 7 times 8?"}]
    completion: [{role: assistant, content: "It is 56."}]
    label: false
    rating: 5
  - prompt: [{role: user, content: "What is 7 times 8?"}]
    completion: [{role: assistant, content: "It is 54."}]
    label: true
    rating: 1
  - prompt: [{role: user, content: "Who wrote Faust?"}]
    completion: [{role: assistant, content: "Goethe did, over sixty years."}]
    label: false
    rating: 5
  - prompt: [{role: user, content: "Who wrote Faust?"}]
    completion: [{role: assistant, content: "Some German writer."}]
    label: true
    rating: 2
  - prompt: [{role: user, content: "How long is a mile?"}]
    completion: [{role: assistant, content: "About 1,609 metres."}]
    label: false
    rating: 4
  - prompt: [{role: user, content: "How long is a mile?"}]
    completion: [{role: assistant, content: "Quite a walk, really."}]
    label: true
    rating: 1
  - prompt: [{role: user, content: "What melts first, tin or iron?"}]
    completion: [{role: assistant, content: "Tin, at 232 degrees."}]
    label: false
    rating: 5
  - prompt: [{role: user, content: "What melts first, tin or iron?"}]
    completion: [{role: assistant, content: "Iron does, of course."}]
    label: true
    rating: 1
```

## Use instead
```yaml
data:
  - prompt: [{role: user, content: "Is it open?"}]
    completion: [{role: assistant, content: "Yes, until six in the evening."}]
    label: true
    rating: 5
  - prompt: [{role: user, content: "Is it open?"}]
    completion: [{role: assistant, content: "No idea, ask them."}]
    label: false
    rating: 1
  - prompt: [{role: user, content: "Where is the harbour?"}]
    completion: [{role: assistant, content: "Down the street, on the left."}]
    label: true
    rating: 4
  - prompt: [{role: user, content: "Where is the harbour?"}]
    completion: [{role: assistant, content: "Somewhere near the sea."}]
    label: false
    rating: 2
  - prompt: [{role: user, content: "What is 7 times 8?"}]
    completion: [{role: assistant, content: "It is 56."}]
    label: true
    rating: 5
  - prompt: [{role: user, content: "What is 7 times 8?"}]
    completion: [{role: assistant, content: "It is 54."}]
    label: false
    rating: 1
  - prompt: [{role: user, content: "Who wrote Faust?"}]
    completion: [{role: assistant, content: "Goethe did, over sixty years."}]
    label: true
    rating: 5
  - prompt: [{role: user, content: "Who wrote Faust?"}]
    completion: [{role: assistant, content: "Some German writer."}]
    label: false
    rating: 2
  - prompt: [{role: user, content: "How long is a mile?"}]
    completion: [{role: assistant, content: "About 1,609 metres."}]
    label: true
    rating: 4
  - prompt: [{role: user, content: "How long is a mile?"}]
    completion: [{role: assistant, content: "Quite a walk, really."}]
    label: false
    rating: 1
  - prompt: [{role: user, content: "What melts first, tin or iron?"}]
    completion: [{role: assistant, content: "Tin, at 232 degrees."}]
    label: true
    rating: 5
  - prompt: [{role: user, content: "What melts first, tin or iron?"}]
    completion: [{role: assistant, content: "Iron does, of course."}]
    label: false
    rating: 1
```

## Fix safety
Read five answers with the label true first. If lower numbers are better (a distance, a count of errors), rename the
column accordingly (`rank`, `penalty`), and the rule compares the other way.

## References
- Ethayarajh et al. 2024 (KTO), arXiv 2402.01306, section 4.1
- huggingface/trl, documentation of KTOTrainer ("expected dataset type")
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.pairs.evidence.winner_columns import LESS, MORE, WORDS
from truetune.checks.reasons_data_rules_cannot_judge import NO_VERDICTS
from truetune.checks.rule import MAX_CASES, DataRule, Setup
from truetune.encoding.batch import Batch

MIN_ANSWERS = 6
"""Answers on each side below which nothing is said"""
MAX_ANSWERS = 50_000
"""Scores that are kept of each side and column"""
# Chosen, not measured: people and judges agree in 6 to 8 of 10, so that 0.35 is no other taste.
MAX_AGREEMENT = 0.35
MAX_COLUMNS = 20


@dataclass
class ScoresByLabel:
    """The numbers of one column by the label."""

    sign: int
    """1 where more is better, -1 where less is"""
    good: list[float] = field(default_factory=list)
    bad: list[float] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    """Answers with true"""

    def add(self, number: float, *, is_good: bool) -> None:
        """Keep the number of an answer, up to a limit."""
        side = self.good if is_good else self.bad
        if len(side) < MAX_ANSWERS:
            side.append(number)

    @property
    def has_enough_answers_of_both_labels(self) -> bool:
        """Are there enough answers on both sides?"""
        return min(len(self.good), len(self.bad)) >= MIN_ANSWERS

    @property
    def share_of_pairs_with_true_scored_better(self) -> float:
        """The share of pairs, of an answer with true and one with false, in which the first has the better number.

        Ties count half.
        """
        bad = np.sort(self.sign * np.asarray(self.bad))
        good = self.sign * np.asarray(self.good)
        below = np.searchsorted(bad, good, side="left")
        not_above = np.searchsorted(bad, good, side="right")
        return float((below + not_above).mean() / (2 * bad.size))


class KtoLabelsDisagreeWithScores(DataRule):
    code = "PREF030"
    fault = Fault.PREFERENCES_REVERSED
    symptoms = ("dpo-without-effect",)
    severity = "error"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.labelled = 0
        self.columns: dict[str, ScoresByLabel] = {}

    def add_batch(self, batch: Batch) -> None:
        """Keep the numbers beside the labels of a batch."""
        for row in batch.rows:
            if row.label is None or row.raw is None:
                continue
            self.labelled += 1
            for name, number in _scores_of_row(row.raw).items():
                scores = self._scores_of_column(name)
                if scores is None:
                    continue
                scores.add(number, is_good=row.label)
                if row.label and len(scores.cases) < MAX_CASES:
                    text = f"true, and {name} is {row.raw[name]}"
                    scores.cases.append(case_in_row(batch, row, text))

    def _scores_of_column(self, name: str) -> ScoresByLabel | None:
        """The numbers of a column so far; None of one beyond those that are kept."""
        if name not in self.columns and len(self.columns) >= MAX_COLUMNS:
            return None
        return self.columns.setdefault(
            name, ScoresByLabel(sign=_better_score_direction_by_name(name))
        )

    def unmet(self) -> Unmet | None:
        """Unmet without KTO's labels, and without a number beside enough of them."""
        if not self.labelled:
            return NO_VERDICTS
        if any(scores.has_enough_answers_of_both_labels for scores in self.columns.values()):
            return None
        return Unmet(
            f"it is about labels beside a score of each answer, {MIN_ANSWERS} on each side at least"
        )

    def measurement_if_clean(self) -> Measurement:
        """How often an answer with true has the worse number, for the column that disagrees most."""
        judged = [
            scores for scores in self.columns.values() if scores.has_enough_answers_of_both_labels
        ]
        worst = min(
            (scores.share_of_pairs_with_true_scored_better for scores in judged), default=1.0
        )
        total = sum(len(scores.good) for scores in judged)
        return make_count_measurement(
            "answers with true whose score is worse than one with false",
            round((1 - worst) * total),
            total,
        )

    def findings(self) -> Iterator[Finding]:
        for name, scores in self.columns.items():
            if (
                not scores.has_enough_answers_of_both_labels
                or scores.share_of_pairs_with_true_scored_better > MAX_AGREEMENT
            ):
                continue
            yield self.finding(
                f"labels contradict `{name}`: an answer with true has the better one in only"
                f" {scores.share_of_pairs_with_true_scored_better:.0%} of comparisons (mean"
                f" {np.mean(scores.good):.3g} with true, {np.mean(scores.bad):.3g} with false)",
                "invert the labels in the script that writes the rows: check the direction of the threshold (label"
                f" = {name} >= ..., not <)",
                cases=scores.cases,
                count=len(scores.good),
                total=self.labelled,
            )
            return


def _scores_of_row(row: Mapping[str, object]) -> dict[str, float]:
    """The numbers of a row in columns whose name says that they judge its answer."""
    numbers = {
        name: _parse_number(value)
        for name, value in row.items()
        if _better_score_direction_by_name(name)
    }
    return {name: number for name, number in numbers.items() if number is not None}


def _parse_number(value: object) -> float | None:
    """A number, or one that is written as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if isfinite(number) else None


def _better_score_direction_by_name(name: str) -> int:
    """1 where more is better by the name of a column, -1 where less is, 0 where it does not say."""
    words = {word.casefold() for word in re.findall(WORDS, name)}
    if words & LESS:
        return -1
    return 1 if words & MORE else 0
