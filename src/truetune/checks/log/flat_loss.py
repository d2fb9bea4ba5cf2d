"""The loss does not move, and the log says why: no learning rate, or the same rows seen again without effect.

## What it does
Takes the Theil-Sen slope of the loss with its 95 % interval. It fires where even the steepest slope of that interval
lowers the loss by less than 2 % over the whole run, and either the learning rate is 0 or below 5e-8 throughout, or
the run saw its rows at least twice. A plateau on rows that are seen once is healthy and no finding.

## Why it is bad
A model that reads the same rows again knows them better, so the loss falls at least a little if anything is learned.

## Example
```yaml
curve:
  loss: {from: 2.0, to: 2.0, steps: 60, noise: 0.02}
  learning_rate: {from: 1.0e-9, steps: 60}
```

## Use instead
```yaml
curve:
  loss: {from: 2.0, to: 1.4, steps: 60, noise: 0.02}
  learning_rate: {from: 1.0e-4, steps: 60}
```

## Fix safety
Usual peaks: 1e-5 to 5e-5 for all weights, 1e-4 to 3e-4 for LoRA. Watch the first hundred steps.

## References
- huggingface/trl#3926; slope: Sen 1968, doi:10.1080/01621459.1968.10480934
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.findings import Finding
from truetune.checks.log.drawing import figure
from truetune.checks.rule import LogRule
from truetune.logs.stats import noise, trend

NO_RATE = 5e-8
MOVES, RISES = 0.02, 0.1
MIN_RATED, MIN_EPOCHS = 5, 20


class FlatLoss(LogRule):
    code = "TT804"
    severity = "warning"
    kinds = ("language",)
    needs = ("loss",)

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        loss, rate = log.curve("loss").finite(), log.curve("learning_rate").finite()
        norm = log.curve("grad_norm")
        if log.kind != "language" or loss.step.size < MIN_RATED or (norm and not norm.value.any()):
            return
        level = float(np.median(loss.value))
        line = trend(loss)
        span = float(loss.step[-1] - loss.step[0])
        drop = max(0.0, -line.slope * span)
        most = max(0.0, -line.low * span)
        peak = float(rate.value.max()) if rate else None
        rated = peak is not None and peak < NO_RATE
        again = log.epochs >= 2 and loss.step.size >= MIN_EPOCHS and most < MOVES * level
        if (
            level < 0.05
            or line.slope * span > RISES * level
            or not (again or (rated and drop < max(MOVES * level, noise(loss.value))))
        ):
            return
        why = "the learning rate is 0" if peak == 0 else f"the learning rate is at most {peak:.3g}" if rated else ""
        yield self.finding(
            f"the loss stays at {level:.4g} over {loss.step.size:,} records"
            + (f": {why}" if why else f" although the rows were seen {log.epochs:.3g} times"),
            "raise the learning rate"
            if rated
            else "see that the trained parameters are those of the model that is run, and raise the learning rate",
            severity="error" if peak == 0 else "warning",
            evidence=(
                f"slope over the run {line.slope * span:+.3g} (95 %: {line.low * span:+.3g} to "
                f"{line.high * span:+.3g}), noise {noise(loss.value):.3g}",
            ),
            figure=figure("loss", {"loss": loss}),
        )
