"""The loss rises to one value and stays there without gradients: the outputs no longer depend on the inputs.

## What it does
Looks at the second half of the records of `loss` and `grad_norm`, 8 at least. It fires if 90 % of the losses there
differ by at most 1 %, their median is at least 2 % above the first losses, and their gradient norms are at most a tenth
of the first ones.

## Why it is bad
Every input gets the same output, and no step can change that. A triplet loss that stays at its margin has mapped all
texts to one point, where the distances to positive and negative are both 0. Units that are dead for all inputs pass no
gradient on. The saved model is worse than the one that was loaded.

## Example
```yaml
curve:
  loss: {values: [4.7, 4.6, 4.98, 5.0, 5.0, 5.0, 5.0, 5.0], steps: 40, noise: 0.002}
  grad_norm: {values: [0.8, 0.9, 0.05, 0.01, 0.01, 0.01, 0.005, 0.003], steps: 40, noise: 0.0005}
```

## Use instead
```yaml
curve:
  loss: {values: [4.7, 4.2, 3.6, 3.1, 2.8, 2.6, 2.5, 2.4], steps: 40, noise: 0.02}
  grad_norm: {values: [0.8, 0.9, 0.8, 0.7, 0.7, 0.6, 0.6, 0.6], steps: 40, noise: 0.02}
```

## Fix safety
A checkpoint from before the rise is not damaged. A lower learning rate or a longer warm-up only slows down learning;
another loss makes it another training.

## References
- omoindrot/tensorflow-triplet-loss#6; Schroff et al. 2015, FaceNet, section 3.2 (collapsed embeddings)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.run_log import Curve, Floats

MIN_PLATEAU = 8
"""Records of the second half. Chosen, not measured: fewer agree by chance"""
MAX_SPREAD = 0.01
"""Between the 5th and the 95th of 100 losses, as a share of their median. Losses of different batches differ by more
wherever the outputs depend on them: by 3 % and more in the logs of this project's tests"""
MIN_RISE = 0.02
MAX_NORM_SHARE = 0.1
"""Of the first gradient norms. Chosen, not measured: norms of a model that learns stay within a factor of some units"""
FIRST_RECORDS = 3


class _Plateau(NamedTuple):
    """The second half of a run, beside its beginning."""

    level: float
    spread: float
    first_loss: float
    first_norm: float
    last_norm: float

    def is_collapse(self) -> bool:
        """Did the loss rise and stop, and the gradient vanish?"""
        has_risen = self.level >= (1 + MIN_RISE) * self.first_loss
        has_vanished = self.last_norm <= MAX_NORM_SHARE * self.first_norm
        return self.first_loss > 0 and self.spread <= MAX_SPREAD and has_risen and has_vanished


class LossStuckHighWithoutGradient(LogRule):
    code = "LOG176"
    fault = Fault.LOSS_STAYS_HIGH
    symptoms = ("loss-does-not-fall", "nothing-is-learned")
    severity = "error"
    kinds = ("language", "preference", "reward")
    needs = ("loss", "grad_norm")
    least = 2 * MIN_PLATEAU

    def measurement_if_clean(self) -> str:
        """How far the losses of the second half differ, and what became of the gradient norm."""
        plateau = self._plateau()
        if plateau is None:
            return ""
        return (
            f"the losses of the second half differ by {plateau.spread:.2g} of {plateau.level:.4g}, with gradient norms"
            f" of {plateau.last_norm:.2g} ({plateau.first_norm:.2g} in the beginning)"
        )

    def findings(self) -> Iterator[Finding]:
        """The finding on a loss that rose, stands still and has no gradient."""
        plateau = self._plateau()
        if plateau is None or not plateau.is_collapse():
            return
        loss = self.subject.curve("loss").finite()
        yield self.finding(
            f"the loss rises from {plateau.first_loss:.4g} to {plateau.level:.4g} and stays there"
            f"{_since_when(loss, plateau.level)}, and the gradient norm falls from {plateau.first_norm:.2g} to"
            f" {plateau.last_norm:.2g}: the outputs no longer depend on the inputs",
            "restart from a checkpoint before the rise, with a lower learning_rate or a longer warm-up (warmup_steps);"
            " with a triplet loss, check whether the loss equals its margin, and use in-batch negatives",
            figure=draw_curves("loss", {"loss": loss}),
        )

    def _plateau(self) -> _Plateau | None:
        """The second half beside the beginning; None where the rule can say nothing, or the loss is not positive."""
        if self.unmet() is not None:
            return None
        loss, norm = (self.subject.curve(name).finite() for name in self.needs)
        late_losses, late_norms = _second_half(loss), _second_half(norm)
        level = float(np.median(late_losses))
        if level <= 0:
            return None
        low, high = np.percentile(late_losses, (5, 95))
        return _Plateau(
            level,
            float(high - low) / level,
            float(np.median(loss.value[:FIRST_RECORDS])),
            float(np.median(norm.value[:FIRST_RECORDS])),
            float(np.median(late_norms)),
        )


def _since_when(loss: Curve, level: float) -> str:
    """From which record on the loss is at its level, in words: many logs have no steps."""
    is_away = np.abs(loss.value - level) > MAX_SPREAD * level
    begin = int(np.flatnonzero(is_away)[-1]) + 1 if is_away.any() else 0
    return f" from record {begin + 1:,} of {loss.step.size:,} on"


def _second_half(curve: Curve) -> Floats:
    """The values of the second half of a curve."""
    return curve.value[curve.value.size // 2 :]
