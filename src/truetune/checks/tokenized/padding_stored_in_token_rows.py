"""Padding that is stored with tokenized rows is learned, or looked at.

## What it does
Looks for runs of the pad token, or of places that the attention mask hides, at the ends of rows: have they labels, and
is there an attention mask that hides them?

## Why it is bad
Labels on padding make most of the loss about pads, and the model learns to write them. Without an attention mask it
looks at them too. Stored padding makes every batch as long as the longest row.

## Example
```yaml
make: [healthy, {pad: learned}]
```

## Use instead
```yaml
make: [healthy]
```

## Fix safety
Cutting the pads off before the rows are written changes nothing else: the collator pads each batch.

## References
- wangshy31/OneRec-Think#8, JulesBelveze/bert-squeeze#80
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import TokenizedRule
from truetune.checks.tokenized.evidence.shared_evidence_on_tokenized_rows import cases_of_row_places

# Chosen, not measured. Padding to the longest row is a large part of a file; runs of stop tokens at
# the ends of texts are one or two places a row. At 0.01 short rows that end so would warn; at 0.04
# little padding passes.
MIN_SHARE = 0.02
"""Of all places: a run of stop tokens at the ends of some texts looks like padding"""


class PaddingStoredInTokenRows(TokenizedRule):
    code = "IDS015"
    symptoms = ("out-of-memory", "cached-data")
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        summary = self.subject.summary
        if not summary.padding:
            return
        places = summary.padding + summary.tokens
        if summary.padding_supervised:
            yield self.finding(
                f"{summary.padding_supervised:,} of {summary.padding:,} places of stored padding have"
                " labels",
                "give padding the label -100, or store the rows without it",
                cases=cases_of_row_places(summary.padded),
                count=summary.padding_supervised,
                total=summary.padding,
            )
        elif summary.padding_attended == summary.padding and summary.padding >= MIN_SHARE * places:
            yield self.finding(
                f"{summary.padding:,} of {places:,} places are stored padding, and no attention mask"
                " hides it",
                "store the rows without padding, or with an attention_mask",
                severity="warning",
                cases=cases_of_row_places(summary.padded),
                count=summary.padding,
                total=places,
            )

    def measurement_if_clean(self) -> Measurement:
        """The number of places of stored padding that have labels."""
        summary = self.subject.summary
        return make_count_measurement(
            "places of stored padding with labels",
            summary.padding_supervised,
            summary.padding + summary.tokens,
        )
