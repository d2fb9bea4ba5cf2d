"""The loss is NaN or infinite.

## What it does
Counts the values of `loss` and `eval_loss` that are NaN or infinite, and says whether any finite one follows.

## Why it is bad
After a NaN in the weights every later step is lost. A NaN that passes comes from a batch without a label or from an
overflow in fp16: that step taught nothing.

## Example
```yaml
log:
  - {step: 1, loss: 2.1}
  - {step: 2, loss: .nan}
  - {step: 3, loss: .nan}
```

## Use instead
```yaml
log:
  - {step: 1, loss: 2.1}
  - {step: 2, loss: 2.0}
  - {step: 3, loss: 1.9}
```

## Fix safety
Go back to a checkpoint before the first one. Train in bf16 instead of fp16; drop the rows without a label.

## References
- huggingface/transformers#13758, huggingface/trl#6702
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.drawing import figure, steps
from truetune.checks.rule import LogRule
from truetune.checks.unmet import LOGGED_BY

LOSSES = ("loss", "eval_loss")


class LossNotFinite(LogRule):
    code = "TT802"
    severity = "error"

    def unmet(self) -> Unmet | None:
        logged = any(self.subject.curve(name) for name in LOSSES)
        return None if logged else Unmet("the log has no loss and no eval_loss", LOGGED_BY["loss"])

    def figure(self) -> str:
        counts = ((name, self.subject.curve(name).step.size) for name in LOSSES)
        return "not finite: " + " and ".join(
            f"0 of {count:,} records of {name}" for name, count in counts if count
        )

    def findings(self) -> Iterator[Finding]:
        for name in LOSSES:
            curve = self.subject.curve(name)
            bad = ~np.isfinite(curve.value)
            if not bad.any():
                continue
            first = float(curve.step[bad][0])
            stays = bool(bad[np.argmax(bad) :].all())
            count, total = int(bad.sum()), int(curve.step.size)
            older = [step for step in self.subject.checkpoints if step < first]
            yield self.finding(
                f"{name} is not finite at {count:,} of {total:,} logged steps"
                + (f", and never again from step {first:,.0f} on" if stays else ""),
                "go back to the checkpoint before it, lower the learning rate or train in bf16, and"
                " look for rows without a label",
                evidence=(steps(curve.step[bad]),)
                + (
                    (f"the last checkpoint before it: checkpoint-{older[-1]}",)
                    if older and name == "loss"
                    else ()
                ),
                count=count,
                total=total,
                figure=figure(name, {name: curve}, {"not finite": first}),
            )
