"""Tokenized rows decode to nonsense with this tokenizer.

## What it does
Decodes a sample of at most 256 rows, and looks for invalid bytes, control characters, words of mixed scripts and words
without grammar.

## Why it is bad
Ids mean nothing without their tokenizer. A cache made by another one trains on noise, and the loss falls anyway, since
noise can be memorised.

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
There is no automatic fix: use the tokenizer that made the rows, or tokenize them again.

## References
- huggingface/datasets#3297
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import TokenizedRule
from truetune.tokenized.tokenized_data import MIN_STRANGE_ROWS, MIN_STRANGE_SHARE


class TokenIdsSpellNoText(TokenizedRule):
    code = "IDS003"
    fault = Fault.TOKENIZER_OF_ANOTHER_MODEL
    symptoms = ("garbage-output",)
    severity = "error"
    needs_right_tokenizer = False

    def findings(self) -> Iterator[Finding]:
        round_trip = self.subject.round_trip
        strange = len(round_trip.strange)
        if strange >= MIN_STRANGE_ROWS and strange >= MIN_STRANGE_SHARE * round_trip.read:
            yield self.finding(
                f"{strange:,} of {round_trip.read:,} decoded rows are nonsense with this tokenizer: another one made"
                " them",
                "give the tokenizer that made the rows (-t FOLDER) and train with it, or tokenize the rows again"
                " with this one (truetune encode)",
                cases=[
                    Case((f"it decodes to {text}"), origin) for origin, text in round_trip.strange
                ],
                count=strange,
                total=round_trip.read,
            )

    def measurement_if_clean(self) -> Measurement:
        """The number of decoded rows that spell no text."""
        round_trip = self.subject.round_trip
        return make_count_measurement(
            "decoded rows that are nonsense", len(round_trip.strange), round_trip.read
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where no row has a text that is long enough to tell."""
        if not self.subject.round_trip.read:
            return super().unmet() or Unmet("no row has a text that is long enough to judge")
        return super().unmet()
