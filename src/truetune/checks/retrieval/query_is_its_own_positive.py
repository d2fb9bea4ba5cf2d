"""The positive text of a query is the query itself.

## What it does
Compares each query with its positive texts: white space, case and prefixes such as "query: " aside. It fires if they
are equal in some rows and not in others. If all rows pair a text with itself, that is meant (SimCSE), and nothing is
reported.

## Why it is bad
Two equal texts have equal embeddings whatever the weights are. Such a row teaches nothing about which text answers a
query. It pulls up the metrics of an evaluation on such rows, and its query is a false example for all others.

## Example
```yaml
data:
  - {anchor: "When do you open?", positive: "When do you open?"}
  - {anchor: "Where is the station?", positive: Next to the church.}
  - {anchor: "Is the pool heated?", positive: The water has 26 degrees.}
```

## Use instead
```yaml
data:
  - {anchor: "When do you open?", positive: We open at nine.}
  - {anchor: "Where is the station?", positive: Next to the church.}
  - {anchor: "Is the pool heated?", positive: The water has 26 degrees.}
```

## Fix safety
Dropping these rows is safe. More often, a column was taken twice where the pairs were made.

## References
- Gao et al. 2021, arXiv 2104.08821: a text paired with itself, where only dropout makes the two embeddings differ
- huggingface/sentence-transformers#391
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.retrieval.evidence.compare_texts_of_rows import cases_of_rows, plain_text
from truetune.checks.rule import RetrievalRule
from truetune.data.retrieval_rows import RetrievalRow

# Chosen, not measured: from here on the pairs are taken as made so on purpose.
MIN_SHARE_ON_PURPOSE = 0.95
"""Share of rows that pair a text with itself, from which it is the method"""


class QueryIsItsOwnPositive(RetrievalRule):
    code = "RET002"
    fault = Fault.RETRIEVAL_TRAINING_WRONG
    symptoms = ("odd-metrics",)
    severity = "warning"

    def measurement_if_clean(self) -> Measurement:
        """How many rows pair a text with itself."""
        rows = self._judged_rows()
        equal = sum(map(_is_paired_with_itself, rows))
        return make_count_measurement("rows whose positive is the query itself", equal, len(rows))

    def findings(self) -> Iterator[Finding]:
        """The finding on rows that pair a text with itself."""
        rows = self._judged_rows()
        equal = [row for row in rows if _is_paired_with_itself(row)]
        if not equal or len(equal) >= MIN_SHARE_ON_PURPOSE * len(rows):
            return
        yield self.finding(
            f"the positive of {len(equal):,} of {len(rows):,} rows is the query itself",
            "drop these rows, or look which column should have been the positive",
            cases=cases_of_rows((row, row.query) for row in equal),
            count=len(equal),
            total=len(rows),
        )

    def _judged_rows(self) -> list[RetrievalRow]:
        """Rows of queries and positives: a scored pair of equal texts with the highest score is true."""
        return [row for row in self.subject.rows if row.positives and not row.is_scored]


def _is_paired_with_itself(row: RetrievalRow) -> bool:
    """Is every positive of a row its query?"""
    query = plain_text(row.query)
    return all(plain_text(text) == query for text in row.positives)
