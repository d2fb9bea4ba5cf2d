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
from truetune.checks.measurement import Measurement, counted
from truetune.checks.rule import TokenizedRule
from truetune.checks.tokenized.cases import cases_of

SHARE = 0.02
"""Of all places: a run of stop tokens at the ends of some texts looks like padding"""


class PaddingStoredInTokenRows(TokenizedRule):
    code = "IDS015"
    severity = "error"

    def findings(self) -> Iterator[Finding]:
        found = self.subject.summary
        if not found.padding:
            return
        places = found.padding + found.tokens
        if found.padding_supervised:
            yield self.finding(
                f"{found.padding_supervised:,} of {found.padding:,} places of stored padding have"
                " labels",
                "give padding the label -100, or store the rows without it",
                cases=cases_of(found.padded),
                count=found.padding_supervised,
                total=found.padding,
            )
        elif found.padding_attended == found.padding and found.padding >= SHARE * places:
            yield self.finding(
                f"{found.padding:,} of {places:,} places are stored padding, and no attention mask"
                " hides it",
                "store the rows without padding, or with an attention_mask",
                severity="warning",
                cases=cases_of(found.padded),
                count=found.padding,
                total=places,
            )

    def figure(self) -> Measurement:
        found = self.subject.summary
        return counted(
            "places of stored padding with labels",
            found.padding_supervised,
            found.padding + found.tokens,
        )
