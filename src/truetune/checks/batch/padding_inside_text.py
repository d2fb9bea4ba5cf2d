"""Pad tokens are in the middle of text, or before it, as if they were text.

## What it does
Looks for pad tokens between other tokens of one document, and for attended pads before it. A pad token that also ends
or begins texts counts only if the rows themselves show that it is padding. Attended pads are an error, others a
warning.

## Why it is bad
Attended pads are read as words; pads that are not attended still shift the positions of what follows. It happens if
rows are padded one by one and then joined, or lose their attention mask.

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
There is no automatic fix: pad whole rows in the collator, with attention 0. The sequences become shorter.

## References

- huggingface/transformers#24839, huggingface/trl#1073
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.auditing.audit import Sample
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import NO_TOKENIZER
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule

SHOWN_TOKENS = 6


class PaddingInsideText(BatchRule):
    code = "BAT025"
    fault = Fault.PADDING_CHANGES_RESULTS
    symptoms = ("garbage-output",)
    severity = "error"
    since = "0.1.0"
    judges_collator = True

    def findings(self) -> Iterator[Finding]:
        pad = self._pad_with_no_other_use()
        misplaced = []
        for sample in self.subject.samples:
            places = _misplaced_pads(sample, pad)
            if places:
                misplaced.append((sample, places))
        if not misplaced:
            return
        count = sum(len(at) for _, at in misplaced)
        attended = any(sample.attended[at].any() for sample, at in misplaced)
        harm = "shift the positions of what follows"
        if attended:
            harm = "are read as text (attention 1)"
        yield self.finding(
            f"{count} pad tokens in {len(misplaced)} of {len(self.subject.samples)} sequences are"
            f" inside or before text and {harm}",
            "pad whole rows in the collator, on one side, with attention_mask 0",
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
        has_left_padding = any(sample.padding[:1].any() for sample in self.subject.samples)
        if self._pad_with_no_other_use() is None and not has_left_padding:
            return Unmet("it is about a pad token of its own, and the tokenizer has none")
        return None

    def measurement_if_clean(self) -> Measurement:
        """How many lines have pad tokens inside or before text."""
        return make_count_measurement(
            "sequences with pad tokens inside or before text", 0, len(self.subject.samples)
        )


def _misplaced_pads(sample: Sample, pad: int | None) -> list[int]:
    """The places of pads with text of one document on both sides, and of attended pads before all
    text.

    Args:
        sample: One line.
        pad: The id of the pad token; None where it has other uses, so that the id alone shows no padding.
    """
    is_pad = np.zeros(len(sample.ids), np.bool_) if pad is None else sample.ids == pad
    text = np.flatnonzero(~is_pad & ~sample.padding)
    if not len(text):
        return []
    pads = np.flatnonzero(is_pad)
    pads = pads[(pads > text[0]) & (pads < text[-1])]
    # The next token of text behind each pad; the one before it in `text` stands on the pad's other
    # side. Pads between two documents are the padding of the first one.
    behind = np.searchsorted(text, pads)
    inside = pads[sample.documents[text[behind - 1]] == sample.documents[text[behind]]]
    start = slice(text[0])
    before = np.flatnonzero(sample.attended[start] & (is_pad | sample.padding)[start])
    return [*before.tolist(), *inside.tolist()]
