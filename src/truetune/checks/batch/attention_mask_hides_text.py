"""The attention mask hides text, not only padding.

## What it does
Looks for tokens with attention 0 that are not padding: they are between attended ones, or are not pad tokens. It says
so if the attention mask is the loss mask.

## Why it is bad
The two masks mean different things. If a prompt is hidden, the model can't read it when it learns the answer. If an
answer is hidden, it is learned from positions that see nothing of it.

## Example

```python
data = encoded(rows)
for row in data:
    row["attention_mask"] = [int(label != -100) for label in row["labels"]]
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), data,
                           processing_class=tokenizer)
```

## Use instead

```python
data = encoded(rows)
for row in data:
    row["attention_mask"] = [1] * len(row["labels"])
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), data,
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: set the attention mask to 1 for all tokens except padding, and give tokens outside the loss
the label -100.

## References

- huggingface/transformers#13914, Blaizzy/mlx-vlm#1392
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from truetune.auditing.audit import Sample
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule

SHOWN_TOKENS = 12


class AttentionMaskHidesText(BatchRule):
    code = "BAT024"
    fault = Fault.ATTENTION_MASK_WRONG
    symptoms = ("garbage-output",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_collator = True

    def findings(self) -> Iterator[Finding]:
        pad = (self.subject.facts["tokenizer"] or {}).get("pad")
        masks = [(sample, _hidden_text_mask(sample, pad)) for sample in self.subject.samples]
        hidden = [(sample, is_hidden) for sample, is_hidden in masks if is_hidden.any()]
        if not hidden:
            return
        count = sum(int(is_hidden.sum()) for _, is_hidden in hidden)
        yield self.finding(
            f"{count} tokens in {len(hidden)} of {len(self.subject.samples)} sequences have attention 0,"
            " although they are not padding",
            "set attention_mask to 1 for all text, and keep tokens out of the loss with the label -100",
            evidence=_evidence_of_loss_mask([sample for sample, _ in hidden]),
            cases=[
                Case(
                    f"{sample.place}: hidden from token {at} on:"
                    f" {sample.text(at, at + SHOWN_TOKENS)!r}"
                )
                for sample, is_hidden in hidden
                for at in [int(np.argmax(is_hidden))]
            ],
            count=len(hidden),
            total=len(self.subject.samples),
        )

    def measurement_if_clean(self) -> Measurement:
        """How many lines have an attention mask that hides text."""
        return make_count_measurement(
            "sequences whose attention mask hides text", 0, len(self.subject.samples)
        )


def _hidden_text_mask(sample: Sample, pad: int | None) -> NDArray[np.bool_]:
    """(tokens,) Is it text with attention 0? A run of one id at either end of a line is padding.

    The pad's id is not enough: trainers pad with other ids (0, EOS), and the audit may not know which.
    """
    hidden = ~sample.attended & (sample.ids != pad)
    if hidden.any():
        for order in (slice(None), slice(None, None, -1)):
            ids, unseen = sample.ids[order], ~sample.attended[order]
            run = np.logical_and.accumulate(unseen & (ids == ids[0]))
            # A single token at an end is a run only where nothing else of the line is hidden.
            if run.sum() > 1 or unseen.sum() == 1:
                hidden[order] &= ~run
    return np.asarray(hidden)


def _evidence_of_loss_mask(samples: list[Sample]) -> Iterator[str]:
    """Evidence that the attention mask is in truth the loss mask, or its opposite."""
    # Padding is in both masks 0: only what is attended, learned or hidden text is compared.
    text = [
        sample.attended | sample.supervised | _hidden_text_mask(sample, None) for sample in samples
    ]
    if all((s.attended[t] == s.supervised[t]).all() for s, t in zip(samples, text, strict=True)):
        yield "the attention mask is the loss mask: the prompts are hidden"
    elif all(not (s.attended & s.supervised).any() for s in samples):
        yield "the attention mask hides exactly the tokens that are in the loss"
