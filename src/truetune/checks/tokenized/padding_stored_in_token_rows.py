"""Padding stored in tokenized rows is in the loss, or is not masked from attention.

## What it does
Looks for runs of the pad token, or of positions that the attention mask hides, at the ends of rows. Labels on padding
are an error; padding without an attention mask is a warning from 2 % of all tokens.

## Why it is bad
Labels on padding make most of the loss about pad tokens, and the model learns to write them. Without an attention mask,
it also attends to them. Stored padding makes every batch as long as the longest row.

## Example
```yaml
make: [healthy, {pad: learned}]
```

## Use instead
```yaml
make: [healthy]
```

## Fix safety
Removing the padding before the rows are written changes nothing else: the collator pads each batch.

## References
- wangshy31/OneRec-Think#8, JulesBelveze/bert-squeeze#80
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
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
    fault = Fault.PADDING_IN_LOSS
    symptoms = ("out-of-memory", "cached-data")
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        summary = self.subject.summary
        if not summary.padding:
            return
        places = summary.padding + summary.tokens
        if summary.padding_supervised:
            yield self.finding(
                f"{summary.padding_supervised:,} of {summary.padding:,} tokens of stored padding have labels: the"
                " model learns to write pad tokens",
                'set the labels of padding to -100, or tokenize without padding (no padding="max_length"); the'
                " collator pads each batch",
                cases=cases_of_row_places(summary.padded),
                count=summary.padding_supervised,
                total=summary.padding,
            )
        elif summary.padding_attended == summary.padding and summary.padding >= MIN_SHARE * places:
            yield self.finding(
                f"{summary.padding:,} of {places:,} tokens are stored padding, and no attention mask hides them",
                'tokenize without padding (no padding="max_length"), or keep the attention_mask column',
                severity="warning",
                cases=cases_of_row_places(summary.padded),
                count=summary.padding,
                total=places,
            )

    def measurement_if_clean(self) -> Measurement:
        """The number of places of stored padding that have labels."""
        summary = self.subject.summary
        return make_count_measurement(
            "tokens of stored padding with labels",
            summary.padding_supervised,
            summary.padding + summary.tokens,
        )
