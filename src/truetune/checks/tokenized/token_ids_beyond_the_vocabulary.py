"""Tokenized rows contain ids that this tokenizer does not have.

## What it does
Compares all ids with the highest id of the tokenizer, and with the rows of the embedding if known.

## Why it is bad
On a GPU, training ends with a device-side assert far from the cause. Another tokenizer made the rows, or tokens were
added to it since.

## Example
```yaml
make: [healthy, {ids: beyond}]
```

## Use instead
```yaml
make: [healthy]
```

## Fix safety
There is no automatic fix: use the tokenizer that made the rows, or tokenize them again.

## References
- huggingface/transformers#23401, huggingface/transformers#33325
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import TokenizedRule
from truetune.checks.tokenized.evidence.shared_evidence_on_tokenized_rows import cases_of_row_places


class TokenIdsBeyondTheVocabulary(TokenizedRule):
    code = "IDS002"
    fault = Fault.TOKENIZER_OF_ANOTHER_MODEL
    symptoms = ("garbage-output",)
    severity = "error"
    needs_right_tokenizer = False

    def findings(self) -> Iterator[Finding]:
        summary, size = self.subject.summary, self.subject.probes.tokenizer.vocabulary
        if summary.beyond.count:
            yield self.finding(
                f"{summary.beyond.count:,} of {summary.rows:,} rows contain ids that the tokenizer does not have: it"
                f" has {size:,}, the highest id is {summary.highest:,}",
                "give the tokenizer that made the rows (-t FOLDER) and train with it, or tokenize the rows again"
                " with this one (truetune encode)",
                cases=cases_of_row_places(summary.beyond),
                count=summary.beyond.count,
                total=summary.rows,
            )

    def measurement_if_clean(self) -> Measurement:
        """The number of rows with ids that the tokenizer does not have, and the highest id."""
        summary, size = self.subject.summary, self.subject.probes.tokenizer.vocabulary
        more = f"; the highest id is {summary.highest:,} of {size:,}"
        return make_count_measurement(
            "rows with ids that the tokenizer does not have",
            summary.beyond.count,
            summary.rows,
            more,
        )
