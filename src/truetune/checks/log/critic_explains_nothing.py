"""The critic of PPO predicts returns worse than a constant would.

## What it does
Reads `critic/vf_explained_var` of verl: the share of the variance of the returns that the critic explains. It warns if
the median of the second half of a run is below 0, over 20 records at least.

## Why it is bad
Advantages are returns minus what the critic expects. A critic that is worse than the mean adds noise to every update,
and the policy follows it. The reasons are a critic with a fresh head and too few updates, a learning rate that is too
low or too high, or a critic of another model whose values have another scale.

## Example
```yaml
curve:
  reward: {from: 0.3, to: 0.32, steps: 60, noise: 0.01}
  critic/vf_explained_var: {from: -1.5, to: -0.8, steps: 60, noise: 0.1}
```

## Use instead
```yaml
curve:
  reward: {from: 0.3, to: 0.6, steps: 60, noise: 0.01}
  critic/vf_explained_var: {values: [-1.5, 0.1, 0.4, 0.5], steps: 60, noise: 0.05}
```

## Fix safety
Training the critic alone for some steps (`trainer.critic_warmup`) is safe. Without a critic (`adv_estimator: grpo`) the
mean of a group takes its place.

## References
- verl-project/verl#498 (explained variance -72, values nan), ray-project/ray#10159
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.run_log import Curve

EXPLAINED = "critic/vf_explained_var"
MIN_RECORDS = 20
"""A fresh critic needs some updates: verl's examples reach 0 within 10 to 20 steps"""


class CriticExplainsNothing(LogRule):
    code = "LOG187"
    fault = Fault.CRITIC_LEARNS_NOTHING
    symptoms = ("reward-does-not-rise", "nothing-is-learned")
    severity = "warning"
    kinds = ("reinforcement",)

    def unmet(self) -> Unmet | None:
        """Also unmet for trainings without a critic."""
        if (unmet := super().unmet()) is not None:
            return unmet
        if self._explained().step.size >= MIN_RECORDS:
            return None
        return Unmet(f"the log has no {MIN_RECORDS} records of what a critic explains")

    def measurement_if_clean(self) -> str:
        """What the critic explains in the second half."""
        return f"the critic explains {self._late_median():.0%} of the variance of the returns"

    def findings(self) -> Iterator[Finding]:
        """The finding on a critic that is worse than a constant."""
        explained = self._explained()
        if self.subject.kind != "reinforcement" or explained.step.size < MIN_RECORDS:
            return
        median = self._late_median()
        if median >= 0:
            return
        yield self.finding(
            f"the critic's explained variance is {median:.2f} in the second half of the run: it predicts returns worse"
            " than their mean would, and its errors are in every advantage",
            "set trainer.critic_warmup to 10 to 20 steps and critic.optim.lr to 1e-5, or train without a critic"
            " (algorithm.adv_estimator: grpo)",
            total=int(explained.step.size),
            figure=draw_curves(EXPLAINED, {EXPLAINED: explained}),
        )

    def _explained(self) -> Curve:
        """The explained variance."""
        return self.subject.curve(EXPLAINED).finite()

    def _late_median(self) -> float:
        """The median of the second half."""
        values = self._explained().value
        return float(np.median(values[values.size // 2 :]))
