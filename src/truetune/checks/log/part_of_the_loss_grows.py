"""A part of the loss grows many times over: the loss of the critic, or the one that balances the experts.

## What it does
Reads every curve of the training whose name holds `loss`, besides the loss itself and the policy's: `loss/value_avg`,
`critic/vf_loss`, `aux_loss`, `load_balancing_loss`, `nll_loss`. It warns if such a part is above 0 throughout, and its
last tenth is ten times its first (three times for losses that balance the experts of a mixture), by more than chance
(Mann-Kendall z > 3.3).

## Why it is bad
A part that grows is not learned, or is learned against. A critic whose loss grows predicts returns worse and worse, and
the advantages become noise. The loss that balances experts has its minimum at 1 (or at the number of experts that each
token takes): where it rises to some times that, a few experts get all tokens, and the others learn nothing. The loss as
a whole may look well, for these parts have small factors in it.

## Example
```yaml
curve:
  loss: {from: 2.0, to: 1.4, steps: 60, noise: 0.02}
  aux_loss: {from: 1.02, to: 6.5, steps: 60, noise: 0.02}
```

## Use instead
```yaml
curve:
  loss: {from: 2.0, to: 1.4, steps: 60, noise: 0.02}
  aux_loss: {from: 1.12, to: 1.01, steps: 60, noise: 0.01}
```

## Fix safety
A larger factor of a balancing loss, and a lower rate of the critic, change what the model learns: start again, or from
a checkpoint before the rise.

## References
- Fedus et al. 2021 (Switch Transformers), arXiv 2101.03961, section 2.2 (the loss that balances experts)
- Huang et al. 2022, "The 37 Implementation Details of PPO" (clipping of the value loss, scales of rewards)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.metric_direction import HELD_OUT_NAME
from truetune.logs.robust_statistics import fit_robust_trend, medians_of_both_ends
from truetune.logs.run_log import Curve

PART = re.compile(r"(?<![a-z])loss(?![a-z])", re.I)
OTHER = re.compile(
    r"policy|pg_loss|actor/|train_loss|_loss_step|total|(?:^|/)loss$"
    r"|kl|entropy|penalty|regulari|token|count|num|weight|coef|scale|ratio|mask|sample|time|clip|spike",
    re.I,
)
"""The loss itself; that of a policy, which is about 0; what grows as a policy learns (its KL); and what is no loss"""
BALANCE = re.compile(r"aux|balanc|router|moe|expert", re.I)
"""Parts that keep the experts of a mixture in balance"""
MIN_POINTS = 20
# Chosen, not measured: the loss of a critic grows with the square of the returns, which may double or treble.
MIN_GROWTH, MIN_GROWTH_OF_BALANCE = 10.0, 3.0
MIN_TREND_Z = 3.3
"""p < 0.001 (Mann-Kendall)"""


class PartOfTheLossGrows(LogRule):
    code = "LOG198"
    fault = Fault.LOSS_UNSTABLE
    severity = "warning"
    symptoms = ("loss-does-not-fall", "reward-does-not-rise")
    moot_where = ("loss-diverges",)

    def unmet(self) -> Unmet | None:
        """Unmet where no part of the loss is logged."""
        if self._parts():
            return None
        return Unmet("the log has no part of the loss beside the loss", "log the parts of the loss")

    def measurement_if_clean(self) -> str:
        """The levels of the parts at both ends."""
        ends = ((name, *medians_of_both_ends(one.value)) for name, one in self._parts().items())
        return "; ".join(f"{name}: {first:.3g} to {last:.3g}" for name, first, last in ends)

    def findings(self) -> Iterator[Finding]:
        """One finding for each part that grows."""
        for name, curve in self._parts().items():
            first, last = medians_of_both_ends(curve.value)
            of_balance = BALANCE.search(name) is not None
            growth = MIN_GROWTH_OF_BALANCE if of_balance else MIN_GROWTH
            if last < growth * first or fit_robust_trend(curve).z < MIN_TREND_Z:
                continue
            remedy = (
                "lower the learning rate of the critic, clip its loss, and scale or normalise the rewards"
                if not of_balance
                else "raise the factor of this loss (router_aux_loss_coef), leave padding out of it, and add it to the"
                " loss once"
            )
            yield self.finding(
                f"{name} grows from {first:.3g} to {last:.3g}"
                + (": a few experts get most of the tokens" if of_balance else " over the run"),
                remedy,
                total=int(curve.step.size),
                figure=draw_curves(name, {name: curve}),
            )

    def _parts(self) -> dict[str, Curve]:
        """The parts of the loss that are above 0 throughout, with records enough."""
        parts: dict[str, Curve] = {}
        for name, curve in self.subject.curves.items():
            is_part = PART.search(name) and not OTHER.search(name) and not HELD_OUT_NAME.match(name)
            finite = curve.finite() if is_part else Curve(curve.step[:0], curve.value[:0])
            if finite.step.size >= MIN_POINTS and float(finite.value.min()) > 0:
                parts[name] = finite
        return parts
