"""Labels are shifted against the ids, and the model shifts them again.

## What it does

Compares the label of each supervised place with the ids at this place, one before and one behind. It fires where the
labels are those of another place, or of none, and the model is a causal one that shifts labels itself.

## Why it is bad

Position t then learns token t+2. The loss falls as it should, and the model writes nonsense.

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

There is no automatic fix: give the model labels that stand at the place of their token.

## References

- huggingface/transformers#47394, huggingface/transformers#37830, huggingface/transformers#35066
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from truetune.auditing.audit import Sample
from truetune.checks.batch.needs import NO_LABELS
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement import Measurement, counted
from truetune.checks.rule import BatchRule

SHIFTS = (-2, -1, 1, 2)
NEARLY = 0.9
SEVERAL = 8
"""Supervised tokens from which a share says something"""


class DoubleLabelShift(BatchRule):
    code = "BAT023"
    severity = "error"
    stability = "stable"
    since = "0.1.0"
    judges_collator = True

    def findings(self) -> Iterator[Finding]:
        samples, total = self._samples, self._total
        if (
            total < SEVERAL
            or not self._shifts_itself()
            or (right := self._share(samples, 0)) > NEARLY
        ):
            return
        shift, share = max(
            ((shift, self._share(samples, shift)) for shift in SHIFTS), key=lambda found: found[1]
        )
        if share > NEARLY and share > right:
            side = "behind" if shift > 0 else "before"
            yield self.finding(
                f"{share:.0%} of {total} labels are the token {abs(shift)} {side} their place, and"
                " the model shifts labels itself",
                "give the model labels that stand at their own token; it shifts them",
                cases=[Case(_shown(sample, shift)) for sample in samples[:1]],
                evidence=[
                    (
                        f"position t learns token t{shift + 1:+d}"
                        if shift != -1
                        else "position t learns token t"
                    )
                ],
                count=round(share * total),
                total=total,
            )
        elif right < 1 - NEARLY or (right < NEARLY and self.subject.kind in ("sft", "loop")):
            yield self.finding(
                f"{1 - right:.0%} of {total} labels are not the token at their place, nor at one"
                " nearby",
                "make labels from input_ids; a collator for masked language models is none for a"
                " causal one",
                cases=[Case(_shown(sample, 0)) for sample in samples[:1]],
                count=round((1 - right) * total),
                total=total,
            )

    def _shifts_itself(self) -> bool:
        facts = self.subject.facts
        causal = facts["model"]["class"].endswith(
            ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
        )
        encodes = facts["model"]["config"].get("is_encoder_decoder")
        return causal and not encodes and not facts["trainer"].get("own_loss", False)

    @staticmethod
    def _share(samples: list[Sample], shift: int) -> float:
        """Share of the labels that are the id `shift` places further on."""
        equal = sum(
            int((sample.labels[at] == sample.ids[(at + shift) % len(sample.ids)]).sum())
            for sample in samples
            if sample.labels is not None
            for at in [np.flatnonzero(sample.supervised)]
        )
        return equal / sum(int(sample.supervised.sum()) for sample in samples)

    def unmet(self) -> Unmet | None:
        if (lacking := super().unmet()) is not None:
            return lacking
        if not self._samples:
            return NO_LABELS
        if not self._shifts_itself():
            return Unmet(
                "it is about causal models that shift labels themselves, and this one or its loss"
                " does not"
            )
        if self._total < SEVERAL:
            return Unmet(
                f"the batches have {self._total} labels, and it takes {SEVERAL}",
                "audit more (--batches)",
            )
        right = self._share(self._samples, 0)
        if right <= NEARLY:
            return Unmet(
                f"it is about labels that are tokens of their line, and {1 - right:.0%} of these"
                " are not"
            )
        return None

    def figure(self) -> Measurement:
        right = round(self._share(self._samples, 0) * self._total)
        return counted("labels that are the token at their place", right, self._total)

    @cached_property
    def _samples(self) -> list[Sample]:
        return [
            sample
            for sample in self.subject.samples
            if sample.labels is not None and sample.supervised.any()
        ]

    @cached_property
    def _total(self) -> int:
        return sum(int(sample.supervised.sum()) for sample in self._samples)


def _shown(sample: Sample, shift: int) -> str:
    at = int(np.flatnonzero(sample.supervised)[0])
    label = int(sample.labels[at]) if sample.labels is not None else -100
    own = sample.text(at, at + 1)
    if shift and 0 <= at + shift < len(sample.ids):
        return (
            f"{sample.place}: the label of {own!r} is {sample.text(at + shift, at + shift + 1)!r}"
        )
    return f"{sample.place}: the label of {own!r} (id {int(sample.ids[at])}) is id {label}"
