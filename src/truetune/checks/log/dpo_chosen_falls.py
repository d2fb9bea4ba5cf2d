"""The chosen answers become less likely along with the rejected ones.

## What it does
Follows `logps/chosen` and `logps/rejected`, and their rewards (which begin at 0 and hold the same without the lengths
of rows): it fires where both sides fall to the last fifth of the run by five times the noise of its median, and the
chosen ones lose a fifth of their log-probability; as a warning where they lose half.

## Why it is bad
The loss looks at the difference alone, so it falls while the model unlearns both answers. Some fall is usual after
SFT on the same answers; a large one moves probability to texts that nobody wrote.

## Example
```yaml
curve:
  logps/chosen: {from: -180, to: -320, steps: 60, noise: 4}
  logps/rejected: {from: -150, to: -500, steps: 60, noise: 4}
  rewards/margins: {from: 0, to: 20, steps: 60, noise: 0.5}
```

## Use instead
```yaml
curve:
  logps/chosen: {from: -180, to: -178, steps: 60, noise: 4}
  logps/rejected: {from: -150, to: -170, steps: 60, noise: 4}
  rewards/margins: {from: 0, to: 2, steps: 60, noise: 0.1}
```

## Fix safety
Lower the learning rate, raise beta, or add an SFT term on the chosen answers (`rpo_alpha`, `pref_ftx`).

## References
- huggingface/trl#800, eric-mitchell/direct-preference-optimization#32, hiyouga/LlamaFactory#6153
- Pal et al. 2024, arXiv 2402.13228
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from truetune.checks.findings import Finding
from truetune.checks.log.log_figures import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.robust_statistics import noise_sigma
from truetune.logs.run_log import Curve

MIN_POINTS = 10
# Chosen, not measured: DPO lowers both log-probabilities a little by its nature; at half, that alone would be noted.
NOTED_FALL, LARGE_FALL = 0.2, 0.5


class DpoChosenFalls(LogRule):
    code = "LOG025"
    severity = "warning"
    since = "0.1.0"
    kinds = ("preference",)
    needs = ("logps/chosen", "logps/rejected")
    least = MIN_POINTS

    def figure(self) -> str:
        named = (
            (side, _ends(self.subject.curve(f"logps/{side}").finite()))
            for side in ("chosen", "rejected")
        )
        return "; ".join(
            f"logps/{side} goes from {first:.4g} to {last:.4g}" for side, (first, last) in named
        )

    def findings(self) -> Iterator[Finding]:
        log = self.subject
        chosen, rejected = log.curve("logps/chosen").finite(), log.curve("logps/rejected").finite()
        if log.kind != "preference" or min(chosen.step.size, rejected.step.size) < MIN_POINTS:
            return
        (first, last), others = _ends(chosen), _ends(rejected)
        lost = (first - last) / abs(first) if first else 0.0
        if lost < NOTED_FALL or not self._fell("chosen") or not self._fell("rejected"):
            return
        yield self.finding(
            f"the chosen answers lose {lost:.0%} of their log-probability ({first:.4g} to"
            f" {last:.4g}), the rejected ones go from {others[0]:.4g} to {others[1]:.4g}",
            "lower the learning rate, raise beta, or add an SFT term on the chosen answers",
            severity="warning" if lost >= LARGE_FALL else "info",
            figure=draw_curves(
                "log-probability", {"logps/chosen": chosen, "logps/rejected": rejected}
            ),
        )

    def _fell(self, side: str) -> bool:
        """Did this side fall by five times the noise of the medians? Its reward begins at 0 by definition."""
        for name, apart in ((f"rewards/{side}", 0.0), (f"logps/{side}", 1 / 3)):
            curve = self.subject.curve(name).finite()
            if curve.step.size >= MIN_POINTS:
                first, last = _ends(curve)
                sure = 5 * noise_sigma(curve.value) * math.sqrt(apart + 5 / curve.step.size)
                if (first if apart else 0.0) - last > sure:
                    return True
        return False


def _ends(curve: Curve) -> tuple[float, float]:
    """Medians of the first three records and of the last fifth."""
    return float(np.median(curve.value[:3])), float(
        np.median(curve.value[-max(3, curve.value.size // 5) :])
    )
