"""Tokenized rows hold ids that this tokenizer does not have.

## What it does
Compares all ids with the highest id of the tokenizer, and with the rows of the embedding where they are known.

## Why it is bad
On a GPU it ends with a device-side assert far from the cause. It says that another tokenizer made the rows, or that
tokens were added to it since.

## Example
```yaml
make: [healthy, {ids: beyond}]
```

## Use instead
```yaml
make: [healthy]
```

## Fix safety
There is no automatic fix: take the tokenizer that made the rows, or encode them again.

## References
- huggingface/transformers#23401, huggingface/transformers#33325
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.measurement import Measurement, counted
from truetune.checks.rule import TokenizedRule
from truetune.checks.tokenized.cases import cases_of


class TokenIdsBeyondTheVocabulary(TokenizedRule):
    code = "IDS002"
    severity = "error"
    needs_right_tokenizer = False

    def findings(self) -> Iterator[Finding]:
        found, size = self.subject.summary, self.subject.probes.tokenizer.vocabulary
        if found.beyond.count:
            yield self.finding(
                f"{found.beyond.count:,} of {found.rows:,} rows hold ids that the tokenizer does"
                f" not have: it has {size:,}, the highest id is {found.highest:,}",
                "name the tokenizer that made the rows with -t, or encode the rows again with"
                " this one",
                cases=cases_of(found.beyond),
                count=found.beyond.count,
                total=found.rows,
            )

    def figure(self) -> Measurement:
        found, size = self.subject.summary, self.subject.probes.tokenizer.vocabulary
        more = f"; the highest id is {found.highest:,} of {size:,}"
        return counted(
            "rows with ids that the tokenizer does not have", found.beyond.count, found.rows, more
        )
