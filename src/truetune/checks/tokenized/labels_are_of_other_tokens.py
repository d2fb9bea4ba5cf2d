"""Labels of tokenized rows are not the ids of their own places.

## What it does
Compares each label that is not -100 with the id at its place, and with the next id.

## Why it is bad
Trainers shift labels themselves. Labels that were shifted before teach each token the one after the next, and the loss
falls all the same; labels of another cut or another tokenizer teach noise.

## Example
```yaml
make: [healthy, {labels: shifted}]
```

## Use instead
```yaml
make: [healthy]
```

## Fix safety
There is no automatic fix: write the labels as the ids themselves, and -100.

## References
- huggingface/transformers#47394, huggingface/transformers#37830, huggingface/transformers#35066
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import TokenizedRule
from truetune.checks.tokenized.evidence.shared_evidence_on_tokenized_rows import cases_of_row_places


class LabelsAreOfOtherTokens(TokenizedRule):
    code = "IDS012"
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
            "are those of the next token: they were shifted already"
            if shifted
            else "are of other tokens"
        )
        yield self.finding(
            f"{differ:,} of {summary.labels_compared:,} labels {how}",
            (
                "write the id of its own place as each label: the trainer shifts them"
                if shifted
                else "make labels and input_ids from one encoding of each row"
            ),
            cases=cases_of_row_places(summary.odd_labels),
            count=differ,
            total=summary.labels_compared,
        )

    def measurement_if_clean(self) -> Measurement:
        """The number of labels that are not the id of their place."""
        summary = self.subject.summary
        return make_count_measurement(
            "labels that are not the id of their place",
            summary.labels_differ,
            summary.labels_compared,
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where the rows have no labels."""
        if not self.subject.summary.labels:
            return Unmet("it is about labels, and the rows have none")
        return super().unmet()
