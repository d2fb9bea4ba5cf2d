"""Both answers of a pair have the same score.

## What it does
Counts pairs whose score columns (`score_chosen` and `score_rejected`, `margin`, and the like) are equal. It needs 20
pairs with scores. It is a warning from 10 % of them, and an info from 2 %.

## Why it is bad
The label of a tie is arbitrary: whichever answer `max` or a sort found first. The model learns noise from it, and the
accuracy stays near 0.5 on these pairs.

## Example
```yaml
data: {rows: 40, prompt: "{i}?", chosen: "{words}", rejected: "{words_before}", score_chosen: "7", score_rejected: "7"}
```

## Use instead
```yaml
data: {rows: 40, prompt: "{i}?", chosen: "{words}", rejected: "{words_before}", score_chosen: "7", score_rejected: "5"}
```

## Fix safety
There is no automatic fix: the threshold for the margin is your choice. A higher one leaves fewer pairs.

## References
- huggingface/trl#2578
- Cui et al. 2023, "UltraFeedback" (arXiv 2310.01377): pairs are made of answers whose scores differ
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.make_cases_at_tokens_and_turns import case_in_row
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import MAX_CASES, PairRule, Setup
from truetune.encoding.batch import Batch

# Chosen, not measured: a judge that gives whole points has some ties that a recipe let pass; a tenth says that no
# margin is asked for.
WARNING_SHARE, NOTE_SHARE = 0.1, 0.02
MIN_PAIRS = 20
"""Pairs with scores from which a share is told"""


class PairScoresAreEqual(PairRule):
    code = "PREF027"
    fault = Fault.PAIRS_WITHOUT_CONTRAST
    symptoms = ("dpo-without-effect",)
    severity = "warning"
    needs_tokenizer = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.scored = self.ties = 0
        self.cases: list[Case] = []

    def add_batch(self, batch: Batch) -> None:
        """Count the pairs of a batch whose sides have equal scores."""
        for row in batch.rows:
            self.pairs += row.rejected is not None
            if row.rejected is None or row.scores is None:
                continue
            self.scored += 1
            if row.scores.difference:
                continue
            self.ties += 1
            if len(self.cases) < MAX_CASES:
                text = f"{row.scores.chosen:g} against {row.scores.rejected:g}"
                self.cases.append(case_in_row(batch, row, text))

    def unmet(self) -> Unmet | None:
        """Also unmet where too few pairs have scores of both sides."""
        if self.pairs and self.scored < MIN_PAIRS:
            return Unmet(f"it is about {MIN_PAIRS} pairs with scores of both sides or more")
        return super().unmet()

    def measurement_if_clean(self) -> Measurement:
        """How many scored pairs have equal scores on both sides."""
        return make_count_measurement("pairs whose sides have equal scores", self.ties, self.scored)

    def findings(self) -> Iterator[Finding]:
        share = self.ties / max(self.scored, 1)
        if self.scored < MIN_PAIRS or share < NOTE_SHARE:
            return
        yield self.finding(
            f"{self.ties:,} of {self.scored:,} pairs are ties: both answers have the same score, so their label is"
            " arbitrary",
            "in the script that makes the pairs, keep only those with a margin, e.g. `if best - worst >= 1`",
            severity="warning" if share >= WARNING_SHARE else "info",
            cases=self.cases,
            count=self.ties,
            total=self.scored,
        )
