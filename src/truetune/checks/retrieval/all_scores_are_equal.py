"""All pairs of an embedding model or reranker have the same score.

## What it does
Reads the scores or labels of pairs of texts. It fires if there are at least ten, and all are equal. If all are 1,
this is a note: a loss that reads no labels needs no other pairs. Which loss reads the rows is known from the script
(scores-outside-the-range-of-the-loss).

## Why it is bad
If every pair fits, a loss on single pairs (cosine similarity, contrastive, binary cross-entropy) is smallest where
all texts have the same embedding: then random texts have a similarity of 0.99. If all scores are equal, a loss on
their order (CoSENT, AnglE) has nothing to learn from, and is zero.

## Example
```yaml
data:
  rows: 12
  sentence1: "{words}"
  sentence2: "{words_before}"
  score: "1.0"
```

## Use instead
```yaml
data:
  - {sentence1: "When do you open?", sentence2: We open at nine., score: 1.0}
  - {sentence1: "When do you open?", sentence2: Next to the church., score: 0.0}
```

## Fix safety
There is no automatic fix: add pairs that do not fit, or train by a loss that takes the other texts of the batch for
them (MultipleNegativesRankingLoss), without the column of scores.

## References
- huggingface/sentence-transformers#3469, huggingface/sentence-transformers#2365 (all similarities become 0.99)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement
from truetune.checks.rule import MAX_CASES, RetrievalRule
from truetune.data.retrieval_rows import RetrievalRow

# Chosen, not measured: of ten pairs with two labels in equal parts, all agree in one of 500 draws.
MIN_PAIRS = 10
"""Scored pairs, below which equal scores may be chance"""
FITS = 1.0
"""The score of pairs that fit"""


class AllScoresAreEqual(RetrievalRule):
    code = "RET005"
    fault = Fault.RETRIEVAL_TRAINING_WRONG
    symptoms = ("nothing-is-learned", "odd-metrics")
    severity = "warning"

    def unmet(self) -> Unmet | None:
        """Unmet without enough scored pairs."""
        if super().unmet() is None and len(self._scored_rows()) < MIN_PAIRS:
            return Unmet(f"it is about scores of pairs, and fewer than {MIN_PAIRS} have one")
        return super().unmet()

    def measurement_if_clean(self) -> Measurement:
        """The range of the scores."""
        scores = self._scores()
        text = f"different scores of {len(scores):,} pairs: {len(set(scores)):,}"
        return Measurement(
            f"{text}, {min(scores):g} to {max(scores):g}", len(set(scores)), len(scores)
        )

    def findings(self) -> Iterator[Finding]:
        """The finding that no pair differs in its score."""
        rows, scores = self._scored_rows(), self._scores()
        if len(scores) < MIN_PAIRS or len(set(scores)) > 1:
            return
        yield self.finding(
            f"all {len(scores):,} pairs have the score {scores[0]:g}",
            "add pairs with other scores, or leave the scores out and train by a loss that takes the other texts of"
            " the batch as negatives (MultipleNegativesRankingLoss)",
            severity="info" if scores[0] == FITS else "warning",
            cases=[Case(f"score {scores[0]:g}", row.origin) for row in rows[:MAX_CASES]],
            count=len(scores),
            total=len(scores),
        )

    def _scored_rows(self) -> list[RetrievalRow]:
        """The rows that are a pair with a score."""
        return [row for row in self.subject.rows if row.is_scored and row.score is not None]

    def _scores(self) -> list[float]:
        """The scores, in the order of the rows."""
        return [row.score for row in self._scored_rows() if row.score is not None]
