"""Pad tokens are in the middle of text, or before it, as if they were text.

## What it does

Looks for pad tokens between other tokens of one document, and for pads before it that are attended to. A pad token that
also ends or begins texts is left alone.

## Why it is bad

Attended pads are read as words; pads that are not attended to still move the positions of what follows. Rows that are
padded one by one and then joined, or that lost their attention mask, look so.

## Example

```python
data = encoded(rows)
for row in data:
    start = next(i for i, label in enumerate(row["labels"]) if label != -100)
    row["input_ids"][start:start] = [tokenizer.pad_token_id] * 6
    row["labels"][start:start] = [-100] * 6
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), data,
                           processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety

There is no automatic fix: pad whole rows, in the collator.

## References

- huggingface/transformers#24839, huggingface/trl#1073
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.auditing.audit import Sample
from truetune.checks.batch.evidence.unmet_batch_needs import NO_TOKENIZER
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, count_measurement
from truetune.checks.rule import BatchRule

SHOWN_TOKENS = 6


class PaddingInsideText(BatchRule):
    code = "BAT025"
    symptoms = ("garbage-output",)
    severity = "error"
    since = "0.1.0"
    judges_collator = True

    def findings(self) -> Iterator[Finding]:
        pad = self._pad_with_no_other_use()
        if pad is None:
            return
        misplaced = []
        for sample in self.subject.samples:
            places = _misplaced_pads(sample, pad)
            if places:
                misplaced.append((sample, places))
        if not misplaced:
            return
        count = sum(len(at) for _, at in misplaced)
        attended = any(sample.attended[at].any() for sample, at in misplaced)
        harm = "move the positions of what follows"
        if attended:
            harm = "are attended to"
        yield self.finding(
            f"{count} pad tokens of {len(misplaced)} of {len(self.subject.samples)} lines are"
            f" inside or before text and {harm}",
            "pad whole rows, on one side, in the collator, with attention 0",
            severity="error" if attended else "warning",
            cases=[
                Case(
                    f"{sample.place}:"
                    f" {sample.text(max(int(at[0]) - SHOWN_TOKENS, 0), int(at[-1]) + SHOWN_TOKENS)!r}"
                )
                for sample, at in misplaced
            ],
            count=len(misplaced),
            total=len(self.subject.samples),
        )

    def _pad_with_no_other_use(self) -> int | None:
        """The id of the pad token, if it neither begins nor ends texts; else None."""
        tokenizer = self.subject.facts["tokenizer"] or {}
        pad: int | None = tokenizer.get("pad")
        return None if pad in (tokenizer.get("bos"), *self.subject.stops) else pad

    def unmet(self) -> Unmet | None:
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        if self.subject.facts["tokenizer"] is None:
            return NO_TOKENIZER
        if self._pad_with_no_other_use() is None:
            return Unmet("it is about a pad token of its own, and the tokenizer has none")
        return None

    def figure(self) -> Measurement:
        """How many lines have pad tokens inside or before text."""
        return count_measurement(
            "lines with pad tokens inside or before text", 0, len(self.subject.samples)
        )


def _misplaced_pads(sample: Sample, pad: int) -> list[int]:
    """The places of pads with text of one document on both sides, and of attended pads before all
    text.
    """
    text = np.flatnonzero((sample.ids != pad) & ~sample.padding)
    if not len(text):
        return []
    pads = np.flatnonzero(sample.ids == pad)
    pads = pads[(pads > text[0]) & (pads < text[-1])]
    # The next token of text behind each pad; the one before it in `text` stands on the pad's other
    # side. Pads between two documents are the padding of the first one.
    behind = np.searchsorted(text, pads)
    inside = pads[sample.documents[text[behind - 1]] == sample.documents[text[behind]]]
    before = np.flatnonzero(sample.attended[: text[0]] & (sample.ids[: text[0]] == pad))
    return [*before.tolist(), *inside.tolist()]
