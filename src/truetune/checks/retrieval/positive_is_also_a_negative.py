"""A text is given both as fitting its query and as not fitting it, in one row.

## What it does
Compares the positive texts of each row with its negative ones: white space, case and a prefix such as "passage: "
aside.

## Why it is bad
The loss draws the text to the query and pushes it away at once. Hard negatives that are mined by a retriever contain
the positives, unless these are taken out. Nothing fails, and the loss stays above the value that it could reach.

## Example
```yaml
data:
  - {query: "When do you open?", pos: [We open at nine.], neg: [We are closed on Sundays., We open at nine.]}
  - {query: "Where is the station?", pos: [Next to the church.], neg: [Trains leave each hour.]}
```

## Use instead
```yaml
data:
  - {query: "When do you open?", pos: [We open at nine.], neg: [We are closed on Sundays.]}
  - {query: "Where is the station?", pos: [Next to the church.], neg: [Trains leave each hour.]}
```

## Fix safety
Taking the text out of the negatives is safe.

## References
- FlagOpen/FlagEmbedding#353 (a maintainer: badly prepared data bring false negatives)
- huggingface/sentence-transformers#2977 (mining with a limit on the score of negatives)
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


class PositiveIsAlsoANegative(RetrievalRule):
    code = "RET001"
    fault = Fault.RETRIEVAL_TRAINING_WRONG
    symptoms = ("loss-does-not-fall", "odd-metrics")
    severity = "error"

    def unmet(self) -> Unmet | None:
        """Unmet without negatives."""
        if super().unmet() is None and not self._rows_with_negatives():
            return Unmet("it is about negative texts, and the rows have none")
        return super().unmet()

    def measurement_if_clean(self) -> Measurement:
        """How many rows have a positive text among the negative ones: none."""
        return make_count_measurement(
            "rows whose positive is also a negative", 0, len(self._rows_with_negatives())
        )

    def findings(self) -> Iterator[Finding]:
        """The finding on rows with a text on both sides."""
        rows = self._rows_with_negatives()
        both = [(row, text) for row in rows for text in _texts_on_both_sides(row)[:1]]
        if both:
            yield self.finding(
                f"{len(both):,} of {len(rows):,} rows have the same text as a positive and as a negative",
                "take the positives of a query out of its negatives",
                cases=cases_of_rows(both),
                count=len(both),
                total=len(rows),
            )

    def _rows_with_negatives(self) -> list[RetrievalRow]:
        """The rows that have negative texts."""
        return [row for row in self.subject.rows if row.negatives]


def _texts_on_both_sides(row: RetrievalRow) -> list[str]:
    """The positives of a row that are negatives, too."""
    negatives = set(map(plain_text, row.negatives))
    return [text for text in row.positives if plain_text(text) in negatives]
