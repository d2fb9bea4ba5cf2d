"""One row says that a text fits a query, and another that it does not.

## What it does
Collects for each query the texts that rows call positive and negative, and for scored pairs the scores. It fires if a
text is positive in one row and negative in another, or if the scores of one pair differ by more than half of their
range.

## Why it is bad
The rows pull in opposite directions. What the model learns of the pair depends on the order of the rows.

## Example
```yaml
data:
  - {anchor: "When do you open?", positive: We open at nine., negative: Next to the church.}
  - {anchor: "When do you open?", positive: The door opens at nine., negative: We open at nine.}
```

## Use instead
```yaml
data:
  - {anchor: "When do you open?", positive: We open at nine., negative: Next to the church.}
  - {anchor: "When do you open?", positive: The door opens at nine., negative: It is heated.}
```

## Fix safety
There is no automatic fix: somebody has to say which label is right.

## References
- huggingface/sentence-transformers#2870 (texts that fit an anchor in one row and are negatives of it in another)
- huggingface/sentence-transformers#608
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.retrieval.evidence.compare_texts_of_rows import cases_of_rows, plain_text
from truetune.checks.rule import RetrievalRule
from truetune.data.retrieval_rows import RetrievalRow

# Chosen, not measured: raters of one pair differ by a step of five, seldom by three.
MAX_SPREAD = 0.5
"""Share of the range of all scores by which two scores of one pair may differ"""


class PairLabelledBothWays(RetrievalRule):
    code = "RET003"
    fault = Fault.RETRIEVAL_TRAINING_WRONG
    symptoms = ("loss-does-not-fall",)
    severity = "warning"
    moot_where = ("positive-is-also-a-negative",)

    def unmet(self) -> Unmet | None:
        """Unmet where rows have neither negatives nor scores."""
        if super().unmet() is None and not any(map(_can_contradict, self.subject.rows)):
            return Unmet("it is about negatives or scores, and the rows have none")
        return super().unmet()

    def measurement_if_clean(self) -> Measurement:
        """How many rows contradict another: none."""
        return make_count_measurement(
            "rows that contradict another row on a pair", 0, len(self.subject.rows)
        )

    def findings(self) -> Iterator[Finding]:
        """The finding on pairs with opposite labels."""
        rows = self.subject.rows
        both = [
            *_rows_with_negative_that_is_positive_elsewhere(rows),
            *_rows_with_other_score(rows),
        ]
        if both:
            yield self.finding(
                f"{len(both):,} of {len(rows):,} rows contradict another row: the same query and text have opposite"
                " labels",
                "keep one label for each pair of query and text",
                cases=cases_of_rows(both),
                count=len(both),
                total=len(rows),
            )


def _can_contradict(row: RetrievalRow) -> bool:
    """Does a row say of a text that it does not fit, or how well it does?"""
    return bool(row.negatives) or row.is_scored


def _rows_with_negative_that_is_positive_elsewhere(
    rows: tuple[RetrievalRow, ...],
) -> Iterator[tuple[RetrievalRow, str]]:
    """Rows with a negative that another row calls a positive of the same query."""
    fitting: dict[str, set[str]] = {}
    for row in rows:
        if not row.is_scored:
            fitting.setdefault(plain_text(row.query), set()).update(map(plain_text, row.positives))
    for row in rows:
        own = set(map(plain_text, row.positives))
        of_others = fitting.get(plain_text(row.query), set()) - own
        clashing = [text for text in row.negatives if plain_text(text) in of_others]
        if clashing:
            yield row, clashing[0]


def _rows_with_other_score(
    rows: tuple[RetrievalRow, ...],
) -> Iterator[tuple[RetrievalRow, str]]:
    """Rows whose score is far from the first one of the same pair."""
    scores = [row.score for row in rows if row.is_scored and row.score is not None]
    if not scores:
        return
    widest = MAX_SPREAD * (max(scores) - min(scores))
    first: dict[tuple[str, str], float] = {}
    for row in rows:
        if not row.is_scored or row.score is None or not row.positives:
            continue
        pair = (plain_text(row.query), plain_text(row.positives[0]))
        if abs(first.setdefault(pair, row.score) - row.score) > widest:
            yield row, f"{row.query} / {row.positives[0]}: {row.score:g}, before {first[pair]:g}"
