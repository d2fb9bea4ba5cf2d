"""The loss jumps wildly from record to record and does not come down.

## What it does
Compares the noise of the loss (the upper quartile of differences between neighbours, as a standard deviation) with its
level. It warns if the noise is above 40 % of the level in both halves of 40 records or more, and the median of the last
third is not clearly lower (by 10 %) than that of the first third, with a learning rate of 1e-3 or more. At a lower
learning rate, or if it is not logged, batches with few tokens can make such a curve too, and the rule does not judge
it.

## Why it is bad
No step builds on the one before: the learning rate is so high that the weights jump around. Nothing that is learned
lasts.

## Example
```yaml
curve:
  loss: {values: [2.0, 2.0], steps: 120, noise: 1.6}
  learning_rate: {from: 0.005, steps: 120}
```

## Use instead
```yaml
curve:
  loss: {values: [2.0, 1.2], steps: 120, noise: 0.1}
  learning_rate: {from: 0.00002, steps: 120}
```

## Fix safety
Lower the learning rate to a tenth and compare the curves. To tell a high learning rate from noisy batches, use more
rows per step (gradient accumulation) or log every 10 steps, and see whether the median falls; an evaluation loss on
held-out rows shows it too.

## References
- Cohen et al. 2021, arXiv 2103.00065 (edge of stability)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.log.evidence.bounds_of_loss_and_rate import HIGH_RATE
from truetune.checks.rule import LogRule
from truetune.logs.robust_statistics import block_medians
from truetune.logs.run_log import Curve, Floats

MIN_POINTS, MOST_POINTS = 40, 4_000
"""Records. Chosen by hand: a third of 40 is enough for a level under such noise; more than 4,000 are thinned to medians
of blocks, so that a long log takes no longer"""
MIN_NOISE = 0.4
"""Of the level: batches of a few unlike rows reach 0.3"""
# Of the first third's level. Chosen, not measured: a run that lost a tenth learns in spite of its noise.
MAX_LAST_SHARE = 0.9
MIN_STANDARD_ERRORS = 2.0
"""Standard errors of the difference of two levels"""
OF_NORMAL = 1.15 * 2**0.5
"""That quartile of the differences of normal values, in their standard deviations"""


class LossIsChaotic(LogRule):
    code = "LOG002"
    fault = Fault.LOSS_UNSTABLE
    severity = "warning"
    kinds = ("language",)
    needs = ("loss",)
    least = MIN_POINTS
    moot_where = (
        "loss-climbs-above-guessing",
        "loss-diverges",
        "loss-oscillates",
        "loss-repeats-with-the-epoch",
    )

    def measurement_if_clean(self) -> str:
        """By which share of its level the loss changes from record to record."""
        loss = self._thinned_finite_losses()
        return (
            f"the loss changes by {_relative_noise(loss.value):.0%} of its level from record to"
            " record"
        )

    def unmet(self) -> Unmet | None:
        """Also unmet where the loss jumps about under a rate that is not logged or not high."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        if not self._stays_noisy_and_high():
            return None
        if not self._highest_rate():
            return Unmet("the loss jumps about, and the learning rate is not logged", "log it")
        return Unmet(
            f"the loss jumps about under a learning rate of {self._highest_rate():.3g}, and batches"
            " of a few tokens explain it as well",
            "log the mean of 10 steps, or an evaluation loss",
        )

    def findings(self) -> Iterator[Finding]:
        rate = self._highest_rate()
        if (
            self.subject.kind not in self.kinds
            or rate < HIGH_RATE
            or not self._stays_noisy_and_high()
        ):
            return
        loss = self._thinned_finite_losses()
        first, last = _first_and_last_third_level(loss.value)
        yield self.finding(
            f"the loss jumps by {_relative_noise(loss.value):.0%} of its level from record to"
            f" record and does not come down: its median is {first:.4g} in the first third and"
            f" {last:.4g} in the last",
            "lower learning_rate to a tenth and compare the curves; if that does not help, use more rows per step"
            " (gradient_accumulation_steps)",
            evidence=(f"the learning rate was up to {rate:.3g}",),
            figure=draw_curves("loss", {"loss": loss}),
        )

    def _thinned_finite_losses(self) -> Curve:
        """The finite losses, thinned to what the statistics can look at."""
        return block_medians(self.subject.curve("loss").finite(), MOST_POINTS)

    def _stays_noisy_and_high(self) -> bool:
        """Is the loss as noisy in both halves, and no lower at the end?"""
        values = self._thinned_finite_losses().value
        if values.size < MIN_POINTS:
            return False
        first, last = _first_and_last_third_level(values)
        # Medians of two thirds differ by chance: by 1.25 standard errors of a mean each.
        chance = (
            MIN_STANDARD_ERRORS * 1.25 * _difference_noise(values) * (2 * 3 / values.size) ** 0.5
        )
        has_fallen = first - last > max((1 - MAX_LAST_SHARE) * first, chance)
        return min(map(_relative_noise, np.array_split(values, 2))) > MIN_NOISE and not has_fallen

    def _highest_rate(self) -> float:
        """The highest learning rate; 0 where none was logged."""
        rates = self.subject.curve("learning_rate").finite()
        return float(rates.value.max()) if rates else 0.0


def _first_and_last_third_level(values: Floats) -> tuple[float, float]:
    """The level of the first and of the last third."""
    third = values.size // 3
    return float(np.median(values[:third])), float(np.median(values[-third:]))


def _relative_noise(values: Floats) -> float:
    """The noise as a share of the level; 0 where the level is not above 0."""
    level = float(np.median(values))
    return _difference_noise(values) / level if level > 0 else 0.0


def _difference_noise(values: Floats) -> float:
    """The noise of neighbours by the third quartile of their differences: of two levels that take turns at random, half
    of the differences are small."""
    return float(np.quantile(np.abs(np.diff(values)), 0.75)) / OF_NORMAL
