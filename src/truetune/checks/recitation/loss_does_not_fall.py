"""The miniature can't memorise a few rows.

## What it does
Trains all weights of a miniature of the model (same architecture, few weights) on a few rows, with the run's own
collator and loss. It fires if the loss is not finite, is 0 from the start, or does not fall to half.

## Why it is bad
Any model can memorise six rows. If this one does not, no label reaches the loss, the labels are not where the loss
expects them, or the loss does not depend on the model: the real run would learn nothing either.

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
There is no automatic fix: the labels or the loss have to be corrected.

## References

- huggingface/trl#3927, huggingface/transformers#32759
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.recitation.recitation_record import read_recitation
from truetune.checks.rule import RecitationRule

# Share of the first loss. Chosen with a wide margin: sound miniatures end at a hundredth of it and less. At 0.25 a run
# that a time limit cut short would be named; near 1 a loss that only wobbles would pass.
MAX_SHARE_OF_FIRST_LOSS = 0.5
# Chosen, not measured: a sound miniature is far below half by then. Fewer steps may be the time limit's doing.
MIN_STEPS = 60


class LossDoesNotFall(RecitationRule):
    code = "REC005"
    fault = Fault.LOSS_STAYS_HIGH
    symptoms = ("loss-does-not-fall",)
    severity = "error"
    stability = "stable"
    since = "0.1.0"

    def findings(self) -> Iterator[Finding]:
        recitation = read_recitation(self.subject)
        losses = recitation.get("loss", ())
        # Losses of preferences begin near log 2 and have no such scale: preference-margin-does-not-grow judges them.
        if not losses or "pairs" in recitation:
            return
        first, last = losses[0], losses[-1]
        # From 0 on there is nothing to learn: no label reaches the loss.
        is_dead = not math.isfinite(last) or first == 0
        stays_high = len(losses) >= MIN_STEPS and last > MAX_SHARE_OF_FIRST_LOSS * first
        if is_dead or stays_high:
            rows = recitation["rows"]
            supervised = [row["supervised"] for row in rows if row["supervised"] is not None]
            evidence = []
            if supervised:
                evidence.append(f"supervised answer tokens in these rows: {sum(supervised)}")
            yield self.finding(
                f"the miniature does not memorise {len(rows)} rows: the loss goes from {first:.3g} to {last:.3g} in"
                f" {len(losses)} steps",
                "check the labels that the collator makes (how many are not -100?), and that compute_loss uses them"
                " with the model's logits",
                evidence=evidence,
            )

    def unmet(self) -> Unmet | None:
        """Also unmet where pairs were trained, no loss was recorded, or the steps were too few."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        recitation = read_recitation(self.subject)
        if "pairs" in recitation:
            return Unmet("it is about the loss of rows, and pairs were trained")
        losses = recitation.get("loss", ())
        if not losses:
            return Unmet("no loss of the miniature was recorded")
        if losses[-1] > MAX_SHARE_OF_FIRST_LOSS * losses[0]:
            return Unmet(
                f"the miniature was trained for {len(losses)} steps, and fewer than {MIN_STEPS} show"
                " nothing"
            )
        return None

    def measurement_if_clean(self) -> str:
        """The first and the last loss on the memorised rows."""
        recitation = read_recitation(self.subject)
        losses = recitation["loss"]
        return (
            f"the loss on {len(recitation['rows'])} rows goes from {losses[0]:.3g} to"
            f" {losses[-1]:.3g}"
        )
