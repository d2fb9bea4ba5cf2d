"""Steps with a loss or a gradient of exactly 0.0: a NaN that the log hides, or a batch without a label.

## What it does
Looks for values of `loss` and `grad_norm` that are exactly 0.0 while the losses around them are above 0.05. No mean
of logarithms is exactly 0 there, and no gradient either. (The loss of a preference can be: there only gradients
count, at margins below 5.)

## Why it is bad
A batch without any label has the loss 0 / 0. Trainers put a 0 or the last mean in its place
(`logging_nan_inf_filter`), so the curve goes on, while these steps taught nothing. Means over several steps hide it
still better: the loss only looks lower, and only the gradient norm is 0.

## Example
```yaml
log:
  - {step: 1, loss: 5.82, grad_norm: 1.9}
  - {step: 2, loss: 5.63, grad_norm: 1.7}
  - {step: 3, loss: 0.0, grad_norm: 0.0}
  - {step: 4, loss: 0.0, grad_norm: 0.0}
  - {step: 5, loss: 5.40, grad_norm: 1.8}
```

## Use instead
```yaml
log:
  - {step: 1, loss: 5.82, grad_norm: 1.9}
  - {step: 2, loss: 5.63, grad_norm: 1.7}
  - {step: 3, loss: 5.55, grad_norm: 1.8}
  - {step: 4, loss: 5.48, grad_norm: 1.6}
  - {step: 5, loss: 5.40, grad_norm: 1.8}
```

## Fix safety
`truetune check` on the data names the rows without a label; drop them, or raise the length that cuts their answers
off. `logging_nan_inf_filter=False` only shows the NaN.

## References
- huggingface/trl#6702, huggingface/trl#6771, huggingface/transformers#13619
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from truetune.checks.findings import Finding
from truetune.checks.log.drawing import figure, steps
from truetune.checks.rule import LogRule
from truetune.logs.log import Curve, Floats
from truetune.logs.stats import falls
from truetune.spec.run import Severity

ALIVE = 0.05
"""Losses above it are no rounded zeros."""
DECIDED = 5.0
"""Reward margin from which a preference loss and its gradient may round to 0"""


class NanHiddenByLoggingFilter(LogRule):
    code = "TT801"
    severity = "error"
    moot_where = ("loss-climbs-above-guessing",)
    kinds = ("language", "preference", "reward")
    needs = ("loss",)

    def figure(self) -> str:
        counts = []
        for name in ("loss", "grad_norm"):
            value = self.subject.curve(name).finite().value
            if value.size:
                counts.append(f"{int((value == 0).sum()):,} of {value.size:,} records of {name}")
        return f"exactly 0: {' and '.join(counts)}"

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        loss, norm = log.curve("loss").finite(), log.curve("grad_norm").finite()
        if log.kind == "reinforcement" or not loss:
            return
        around = Curve(loss.step, _around(loss))
        language = log.kind == "language"
        dead = loss.step[(loss.value == 0) & (around.value > ALIVE) & language]
        still = np.zeros(0)
        in_windows = loss.step.size > 1 and float(np.median(np.diff(loss.step))) > 1
        unmeasured = not np.any(norm.value)
        if not unmeasured or (in_windows and falls(loss)):
            still = norm.step[
                (norm.value == 0) & (around.at(norm.step) > ALIVE) & ~self._decided(norm.step)
            ]
        every = language and not np.any(loss.value) and loss.step.size > 1
        found = loss.step if every else np.union1d(dead, still)
        if not found.size:
            return
        severity: Severity = "info" if unmeasured else "warning"
        what = "loss" if dead.size or every else "gradient norm"
        yield self.finding(
            f"the {what} is exactly 0.0 at {found.size:,} of {loss.step.size:,} logged steps"
            + ("" if every else " while the run learns"),
            "find the batches without a label (`truetune check` on the data) and drop these rows or"
            " lengthen them",
            severity="error" if dead.size or every or 1 < still.size < norm.step.size else severity,
            evidence=(
                (
                    f"loss 0.0 at {steps(loss.step if every else dead)}"
                    if dead.size or every
                    else "no loss is 0.0"
                ),
                (
                    f"gradient norm 0.0 at {steps(still)}"
                    + (": perhaps it was not measured" if unmeasured else "")
                    if still.size
                    else ""
                ),
            )[: 2 if still.size else 1],
            count=int(found.size),
            total=int(loss.step.size),
            figure=figure(
                "loss and gradient norm",
                {"loss": loss, "grad_norm": norm},
                {"first at": float(found[0])},
            ),
        )

    def _decided(self, step: Floats) -> NDArray[np.bool_]:
        """Are preferences so clear at these steps that their loss vanishes?"""
        margins = self.subject.curve("rewards/margins").finite()
        return np.abs(margins.at(step)) > DECIDED if margins else np.zeros(step.size, dtype=bool)


def _around(loss: Curve) -> Floats:
    """(points,) the smaller of the nearest losses on both sides that are not 0."""
    (live,) = np.nonzero(loss.value)
    if not live.size:
        return np.zeros(loss.value.size)
    place = np.searchsorted(live, np.arange(loss.value.size))
    after = loss.value[live[np.minimum(place, live.size - 1)]]
    before = loss.value[live[np.maximum(place - 1, 0)]]
    made: Floats = np.minimum(before, after)
    return made
