"""Labels of tokenized rows are not the ids at their own positions.

## What it does
Compares each label that is not -100 with the id at its position, and with the next id.

## Why it is bad
Trainers shift labels themselves. Labels that are already shifted teach each token the one after the next, and the loss
still falls. Labels of another text or tokenizer teach noise.

## Example
```yaml
make: [healthy, {labels: shifted}]
```

## Use instead
```yaml
make: [healthy]
```

## Fix safety
There is no automatic fix: write the ids themselves as labels, and -100 where there is no loss.

## References
- huggingface/transformers#47394, huggingface/transformers#37830, huggingface/transformers#35066
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import TokenizedRule
from truetune.checks.tokenized.evidence.shared_evidence_on_tokenized_rows import cases_of_row_places


class LabelsAreOfOtherTokens(TokenizedRule):
    code = "IDS012"
    fault = Fault.LABELS_MISALIGNED_WITH_TOKENS
    symptoms = ("garbage-output", "loss-does-not-fall", "cached-data")
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        summary = self.subject.summary
        differ = summary.labels_differ
        if not differ:
            return
        # More than half of those that differ: a shift makes each label the next id, another
        # encoding hardly any.
        shifted = 2 * summary.labels_shifted >= differ
        how = (
            "are the id of the next token: they are already shifted, and the trainer shifts them again"
            if shifted
            else "are of other tokens"
        )
        yield self.finding(
            f"{differ:,} of {summary.labels_compared:,} labels {how}",
            (
                "set each label to the id at its own position (labels = input_ids, and -100 where masked); the"
                " trainer shifts them itself"
                if shifted
                else "make labels and input_ids from the same tokenization of each row"
            ),
            cases=cases_of_row_places(summary.odd_labels),
            count=differ,
            total=summary.labels_compared,
        )

    def measurement_if_clean(self) -> Measurement:
        """The number of labels that are not the id of their place."""
        summary = self.subject.summary
        return make_count_measurement(
            "labels that are not the id at their position",
            summary.labels_differ,
            summary.labels_compared,
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where the rows have no labels."""
        if not self.subject.summary.labels:
            return Unmet("it is about labels, and the rows have none")
        return super().unmet()
