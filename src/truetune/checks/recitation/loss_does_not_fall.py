"""The miniature can't learn a few rows by heart.

## What it does

Trains all weights of a miniature of the model on a few rows, by the run's own collator and loss, and fires where the
loss is no number, is 0 from the start, or does not fall to half.

## Why it is bad

Any model learns six rows by heart. Where this one does not, no label reaches the loss, labels are elsewhere than the
loss looks for them, or the loss does not depend on the model: the real run would learn nothing either.

## Example

```python
ids = [{**row, "labels": [-100] * len(row["labels"])} for row in encoded(rows)]
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), ids,
                           processing_class=tokenizer)
```

## Use instead

```python
run = transformers.Trainer(model, arguments(), transformers.DataCollatorForSeq2Seq(tokenizer), encoded(rows),
                           processing_class=tokenizer)
```

## Fix safety

There is no automatic fix.

## References

- huggingface/trl#3927, huggingface/transformers#32759
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.recitation.recited import recitation
from truetune.checks.rule import RecitationRule

SHARE = 0.5
"""Of the first loss, which any model falls below"""
STEPS = 60
"""Fewer tell nothing, unless the loss is no number"""


class LossDoesNotFall(RecitationRule):
    code = "REC005"
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        found = recitation(self.subject)
        losses = found.get("loss", ())
        if not losses or "pairs" in found:
            return
        first, last = losses[0], losses[-1]
        dead = not math.isfinite(last) or first == 0
        if dead or (len(losses) >= STEPS and last > SHARE * first):
            supervised = [
                row["supervised"] for row in found["rows"] if row["supervised"] is not None
            ]
            yield self.finding(
                f"the loss on {len(found['rows'])} rows goes from {first:.3g} to {last:.3g} in"
                f" {len(losses)} steps",
                "look at the labels that the collator makes, and at how the loss uses them",
                evidence=(
                    [f"supervised answer tokens in these rows: {sum(supervised)}"]
                    if supervised
                    else ()
                ),
            )

    def unmet(self) -> Unmet | None:
        if (lacking := super().unmet()) is not None:
            return lacking
        found = recitation(self.subject)
        if "pairs" in found:
            return Unmet("it is about the loss of rows, and pairs were trained")
        losses = found.get("loss", ())
        if not losses:
            return Unmet("no loss of the miniature was recorded")
        if losses[-1] > SHARE * losses[0]:
            return Unmet(
                f"the miniature was trained for {len(losses)} steps, and fewer than {STEPS} tell"
                " nothing"
            )
        return None

    def figure(self) -> str:
        found = recitation(self.subject)
        losses = found["loss"]
        return (
            f"the loss on {len(found['rows'])} rows goes from {losses[0]:.3g} to {losses[-1]:.3g}"
        )
