"""Tokenized rows spell no text under this tokenizer.

## What it does
Decodes a sample of at most 256 rows, and looks for bytes that are no characters, control characters, words of mixed
scripts and words without grammar.

## Why it is bad
Ids mean nothing without their tokenizer. A cache that another one made trains noise, and the loss falls, since noise
can be learned by heart.

## Example
```yaml
tokenizer: bos
make: [healthy, {ids: of-another-tokenizer}]
```

## Use instead
```yaml
tokenizer: bos
make: [healthy]
```

## Fix safety
There is no automatic fix: take the tokenizer that made the rows, or encode them again.

## References
- huggingface/datasets#3297
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.rule import TokenizedRule
from truetune.tokenized.tokenized_data import MIN_STRANGE_ROWS, MIN_STRANGE_SHARE


class TokenIdsSpellNoText(TokenizedRule):
    code = "IDS003"
    severity = "error"
    needs_right_tokenizer = False

    def findings(self) -> Iterator[Finding]:
        found = self.subject.round_trip
        strange = len(found.strange)
        if strange >= MIN_STRANGE_ROWS and strange >= MIN_STRANGE_SHARE * found.read:
            yield self.finding(
                f"{strange:,} of {found.read:,} rows that were decoded spell no text under this"
                " tokenizer",
                "name the tokenizer that made the rows with -t, or encode the rows again with"
                " this one",
                cases=[Case(f"it spells {text}", origin) for origin, text in found.strange],
                count=strange,
                total=found.read,
            )

    def figure(self) -> Measurement:
        found = self.subject.round_trip
        return counted("decoded rows that spell no text", len(found.strange), found.read)

    def unmet(self) -> Unmet | None:
        if not self.subject.round_trip.read:
            return super().unmet() or Unmet("no row has a text that is long enough to tell")
        return super().unmet()
