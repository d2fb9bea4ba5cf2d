"""Rows contain several conversations, but no column separates them.

## What it does
Counts the conversations in a row by BOS, system turns and stop tokens, and looks for `seq_lengths`, `position_ids` that
restart, document numbers, or an attention mask that numbers them.

## Why it is bad
Without boundaries, the second conversation attends to the first, and uses what it finds there. Plain text for
pretraining is packed like this on purpose, and is not reported.

## Example
```yaml
tokenizer: bos
make: [healthy, {pack: joined}]
```

## Use instead
```yaml
tokenizer: bos
make: [healthy, {pack: parted}]
```

## Fix safety
There is no automatic fix: `truetune encode --packing best-fit` writes the boundaries.

## References
- huggingface/trl#3067, huggingface/trl#5316, huggingface/transformers#25452
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import TokenizedRule
from truetune.checks.tokenized.evidence.shared_evidence_on_tokenized_rows import cases_of_row_places
from truetune.render.rendering import Source

# A writer that packs does so with all rows that are short enough: two are the least that no
# quotation explains.
MIN_ROWS = 2
"""A single row may quote a second conversation"""


class PacksStoredWithoutBorders(TokenizedRule):
    code = "IDS001"
    fault = Fault.PACKED_ROWS_NOT_SEPARATED
    symptoms = ("nothing-is-learned", "cached-data")
    severity = "warning"

    def findings(self) -> Iterator[Finding]:
        summary = self.subject.summary
        if self.subject.is_plain_text or summary.joined.count < MIN_ROWS:
            return
        yield self.finding(
            f"{summary.joined.count:,} of {summary.rows:,} rows contain several documents but no column separates"
            " them: each document attends to the ones before it",
            "pack the rows again with boundaries: truetune encode --packing best-fit, or write a column"
            " seq_lengths, or position_ids that restart at 0",
            cases=cases_of_row_places(summary.joined),
            count=summary.joined.count,
            total=summary.rows,
        )

    def measurement_if_clean(self) -> Measurement:
        """The number of rows that hold several documents without borders, and of those with
        borders.
        """
        summary = self.subject.summary
        parted = (
            (f"; {summary.parted:,} rows contain several with boundaries") if summary.parted else ""
        )
        return make_count_measurement(
            "rows that contain several documents without boundaries",
            summary.joined.count,
            summary.rows,
            parted,
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where the rows are plain text, or the beginning of a conversation can't be
        recognised.
        """
        if self.subject.is_plain_text:
            return Unmet("it is about conversations, and the rows are plain text")
        if not (self._are_beginnings_recognisable() or self.subject.summary.parted):
            return super().unmet() or Unmet(
                "without BOS and system turns a new conversation looks like a further turn"
            )
        return super().unmet()

    def _are_beginnings_recognisable(self) -> bool:
        """Do conversations begin with something that no further turn has?"""
        summary = self.subject.summary
        return bool(
            summary.begins_with_bos or summary.counts[Source.SYSTEM].any() or not summary.chats
        )
