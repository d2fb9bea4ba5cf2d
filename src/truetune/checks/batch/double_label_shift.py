"""Labels are shifted against the ids, and the model shifts them again.

## What it does

Compares each supervised label with the input id at the same position, the one before it and the one after it. It fires
if the labels match another position, or none, and the model is a causal one that shifts labels itself.

## Why it is bad
Position t then learns token t+2. The loss falls as usual, and the model writes nonsense.

## Example

```python
data = encoded(rows)
for row in data:
    row["labels"] = row["labels"][1:] + [-100]
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), data,
                           processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety
There is no automatic fix: give each token its own id as label (`labels = input_ids`, with -100 where it is masked). The
model shifts labels itself.

## References

- huggingface/transformers#47394, huggingface/transformers#37830, huggingface/transformers#35066
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from truetune.auditing.audit import Sample
from truetune.checks.batch.evidence.reasons_batch_rules_cannot_judge import NO_LABELS
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rule import BatchRule

SHIFTS = (-2, -1, 1, 2)
"""Places by which labels may be off: shifted once or twice, in either direction. A shift by more is
no known mistake"""
# Chosen, not measured. Right labels agree in all places, those of a masked-language collator in one
# of ten; text that repeats itself agrees with its neighbours in few. Between them lies what code of
# one's own changes on purpose.
ALIGNED_SHARE = 0.9
"""Share of the labels that are the token at a place, from which they are made from it"""
# Chosen, not measured: of eight labels of one classification head, all may be one token, and agree
# with any shift.
MIN_LABELS = 8
"""Supervised tokens from which a share says something"""


class DoubleLabelShift(BatchRule):
    code = "BAT023"
    fault = Fault.LABELS_MISALIGNED_WITH_TOKENS
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_collator = True

    def findings(self) -> Iterator[Finding]:
        samples, total = self._labelled_lines, self._count_labels
        if total < MIN_LABELS or not self._does_model_shift_labels():
            return
        right = self._share_of_shifted_labels(samples, 0)
        if right > ALIGNED_SHARE:
            return
        shares = {shift: self._share_of_shifted_labels(samples, shift) for shift in SHIFTS}
        shift = max(shares, key=shares.__getitem__)
        if shares[shift] > ALIGNED_SHARE and shares[shift] > right:
            yield self._finding_on_shift(shift, shares[shift])
        # Trainers for preferences may mask or change some labels of their own; of SFT, each label
        # is a token of its line.
        elif right < 1 - ALIGNED_SHARE or (
            right < ALIGNED_SHARE and self.subject.kind in ("sft", "loop")
        ):
            yield self.finding(
                f"{1 - right:.0%} of {total} labels are neither the token at their position nor one"
                " nearby",
                "copy the labels from input_ids; a collator for masked language models"
                " (DataCollatorForLanguageModeling with mlm=True) does not fit a causal model",
                cases=[Case(_show_shifted_label(sample, 0)) for sample in samples[:1]],
                count=round((1 - right) * total),
                total=total,
            )

    def _finding_on_shift(self, shift: int, share: float) -> Finding:
        """The finding that nearly all labels are the token `shift` places further on."""
        side = "after" if shift > 0 else "before"
        # The model shifts once more: the prediction at t is compared with the label at t + 1.
        learned = f"t{shift + 1:+d}" if shift != -1 else "t"
        return self.finding(
            f"{share:.0%} of {self._count_labels} labels are the token {abs(shift)} {side} their position, and"
            " the model shifts labels again",
            "do not shift labels yourself: give each position the label of its own token (labels = input_ids); the"
            " model shifts them",
            cases=[Case(_show_shifted_label(sample, shift)) for sample in self._labelled_lines[:1]],
            evidence=[f"position t learns token {learned}"],
            count=round(share * self._count_labels),
            total=self._count_labels,
        )

    def _does_model_shift_labels(self) -> bool:
        """Is the model a causal one of transformers under its own loss, which shifts the labels
        that it is given?
        """
        facts = self.subject.facts
        causal = facts["model"]["class"].endswith(
            ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
        )
        encodes = facts["model"]["config"].get("is_encoder_decoder")
        return causal and not encodes and not facts["trainer"].get("own_loss", False)

    @staticmethod
    def _share_of_shifted_labels(samples: list[Sample], shift: int) -> float:
        """Share of the labels that are the id `shift` places further on."""
        equal = sum(
            # Modulo: the few places that point beyond an end count as any other token.
            int((sample.labels[at] == sample.ids[(at + shift) % len(sample.ids)]).sum())
            for sample in samples
            if sample.labels is not None
            for at in [np.flatnonzero(sample.supervised)]
        )
        return equal / sum(int(sample.supervised.sum()) for sample in samples)

    def unmet(self) -> Unmet | None:
        lacking = super().unmet()
        if lacking is not None:
            return lacking
        if not self._labelled_lines:
            return NO_LABELS
        if not self._does_model_shift_labels():
            return Unmet(
                "it is about causal models that shift labels themselves, and this one or its loss"
                " does not"
            )
        if self._count_labels < MIN_LABELS:
            return Unmet(
                f"the batches have {self._count_labels} labels, and it takes {MIN_LABELS}",
                "audit more (--batches)",
            )
        right = self._share_of_shifted_labels(self._labelled_lines, 0)
        if right <= ALIGNED_SHARE:
            return Unmet(
                f"it is about labels that are tokens of their line, and {1 - right:.0%} of these"
                " are not"
            )
        return None

    def measurement_if_clean(self) -> Measurement:
        """How many labels are the token at their own place."""
        right = round(self._share_of_shifted_labels(self._labelled_lines, 0) * self._count_labels)
        return make_count_measurement(
            "labels that are the token at their position", right, self._count_labels
        )

    @cached_property
    def _labelled_lines(self) -> list[Sample]:
        """Lines with labels."""
        return [
            sample
            for sample in self.subject.samples
            if sample.labels is not None and sample.supervised.any()
        ]

    @cached_property
    def _count_labels(self) -> int:
        """Labels in all lines."""
        return sum(int(sample.supervised.sum()) for sample in self._labelled_lines)


def _show_shifted_label(sample: Sample, shift: int) -> str:
    """The first label of the first line, by the token that it is in truth."""
    at = int(np.flatnonzero(sample.supervised)[0])
    label = int(sample.labels[at]) if sample.labels is not None else -100
    own = sample.text(at, at + 1)
    if shift and 0 <= at + shift < len(sample.ids):
        return (
            f"{sample.place}: the label of {own!r} is {sample.text(at + shift, at + shift + 1)!r}"
        )
    return f"{sample.place}: the label of {own!r} (id {int(sample.ids[at])}) is id {label}"
