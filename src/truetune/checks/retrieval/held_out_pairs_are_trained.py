"""Pairs of the evaluation rows of an embedding model are in the training rows.

## What it does
Compares the pairs of query and positive text of the evaluation rows with those of the training rows: white space, case
and prefixes aside. A text that both sets share without its query is no finding: a corpus is searched in training and
evaluation alike.

## Why it is bad
The evaluation then measures what was memorised: recall and NDCG of such pairs are near 1 and say nothing of new
queries.

## Example
```yaml
data:
  - {query: "When do you open?", positive: We open at nine.}
  - {query: "Where is the station?", positive: Next to the church.}
eval_data:
  - {query: "When do you open?", positive: We open at nine.}
```

## Use instead
```yaml
data:
  - {query: "When do you open?", positive: We open at nine.}
  - {query: "Where is the station?", positive: Next to the church.}
eval_data:
  - {query: "Is the pool heated?", positive: The water has 26 degrees.}
```

## Fix safety
Taking these pairs out of the training rows is safe.

## References
- huggingface/sentence-transformers#2423
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

# Chosen, not measured, as for other rows: a few pairs may be in both by chance (greetings, short questions).
MIN_SHARE_OF_ERROR = 0.05
"""Share of the evaluation rows, from which it is an error"""


class HeldOutPairsAreTrained(RetrievalRule):
    code = "RET006"
    fault = Fault.EVALUATION_ROWS_IN_TRAINING_DATA
    symptoms = ("odd-metrics",)
    severity = "error"

    def unmet(self) -> Unmet | None:
        """Unmet without evaluation rows."""
        if super().unmet() is None and not self.subject.evaluation:
            return Unmet("it is about evaluation rows", "name them: --eval-data FILE")
        return super().unmet()

    def measurement_if_clean(self) -> Measurement:
        """How many pairs of the evaluation are trained: none."""
        return make_count_measurement(
            "evaluation pairs in the training rows", 0, len(self.subject.evaluation)
        )

    def findings(self) -> Iterator[Finding]:
        """The finding on pairs that are in both sets."""
        trained = {pair for row in self.subject.rows for pair in _pairs_of_row(row)}
        evaluation = self.subject.evaluation
        shared = [row for row in evaluation if not trained.isdisjoint(_pairs_of_row(row))]
        if not shared:
            return
        share = len(shared) / len(evaluation)
        yield self.finding(
            f"{len(shared):,} of {len(evaluation):,} evaluation rows are a pair of the training rows",
            "take these pairs out of the training rows, or evaluate on others",
            severity="error" if share >= MIN_SHARE_OF_ERROR else "warning",
            cases=cases_of_rows((row, row.query) for row in shared),
            count=len(shared),
            total=len(evaluation),
        )


def _pairs_of_row(row: RetrievalRow) -> set[tuple[str, str]]:
    """The pairs of query and fitting text of a row."""
    query = plain_text(row.query)
    return {(query, plain_text(text)) for text in row.positives}
