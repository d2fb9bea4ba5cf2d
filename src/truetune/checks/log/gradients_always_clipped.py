"""Nearly every gradient is clipped to a small part of its size.

## What it does
Compares `grad_norm`, which is logged before clipping, with the run's `max_grad_norm`, if the log or the settings
contain it. It reports, as info, a run in which 95 % of the steps are clipped and the median norm is ten times the
limit.

## Why it is bad
The size of a gradient no longer matters: easy and hard batches move the weights by the same amount. Under SGD, the
learning rate is in effect a tenth of the one that was set. Adam divides by the gradient's size, so it suffers less.

## Example
```yaml
curve:
  grad_norm: {from: 25, steps: 50, noise: 1}
state: {max_grad_norm: 1.0}
```

## Use instead
```yaml
curve:
  grad_norm: {from: 2.5, steps: 50, noise: 1}
state: {max_grad_norm: 1.0}
```

## Fix safety
First find out why gradients are that large (a summed loss, bad rows). Then raise `max_grad_norm` to about their usual
size: under SGD, steps become larger by the same factor.

## References
- Pascanu et al. 2013, arXiv 1211.5063
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule

MIN_POINTS = 20
"""Records. Chosen by hand: gradients are large in a warm-up; with fewer, its norms would be the usual ones"""
# Times the clipping norm. Chosen, not measured: norms of two or three times the limit are usual and harmless; at 20, a
# step is a twentieth of what its rate says.
MIN_TIMES_LIMIT = 10.0


class GradientsAlwaysClipped(LogRule):
    code = "LOG014"
    fault = Fault.LOSS_UNSTABLE
    symptoms = ("loss-does-not-fall",)
    severity = "info"
    since = "0.1.0"
    needs = ("grad_norm",)
    least = MIN_POINTS

    def unmet(self) -> Unmet | None:
        """Also unmet where the log names no max_grad_norm, or gradients are not clipped."""
        unmet = super().unmet()
        if unmet is not None:
            return unmet
        limit = self.subject.fact_as_number("max_grad_norm")
        if limit is None:
            return Unmet(
                "the log names no max_grad_norm",
                "name W&B's files of the run, which hold its settings",
            )
        return Unmet("gradients are not clipped") if limit <= 0 else None

    def measurement_if_clean(self) -> str:
        """How many gradients are clipped at which limit, and their median norm."""
        limit, norm = (
            self.subject.fact_as_number("max_grad_norm") or 0.0,
            self.subject.curve("grad_norm").finite().value,
        )
        clipped = int((norm > limit).sum())
        usual = np.median(norm)
        return (
            f"{clipped:,} of {norm.size:,} gradients are clipped at {limit:g}; their median norm is"
            f" {usual:.3g}"
        )

    def findings(self) -> Iterator[Finding]:
        limit, norm = (
            self.subject.fact_as_number("max_grad_norm"),
            self.subject.curve("grad_norm").finite(),
        )
        if not limit or limit <= 0 or norm.step.size < MIN_POINTS:
            return
        clipped = int((norm.value > limit).sum())
        usual = float(np.median(norm.value))
        if clipped >= 0.95 * norm.step.size and usual > MIN_TIMES_LIMIT * limit:
            yield self.finding(
                f"{clipped:,} of {norm.step.size:,} gradients are clipped at max_grad_norm={limit:g}, but their"
                f" median norm is {usual:.3g}",
                "first find out why gradients are that large (a summed loss, bad rows); then raise max_grad_norm to"
                f" about {usual:.2g}, or lower learning_rate",
                count=clipped,
                total=int(norm.step.size),
                figure=draw_curves("gradient norm", {"grad_norm": norm}, log=True),
            )
