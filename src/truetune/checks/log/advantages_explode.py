"""The advantages of single answers are so large that they outweigh all others.

## What it does
Reads the largest and the smallest advantage of each step (`advantages/max` of NeMo-RL, `critic/advantages/max` of
verl). It warns if one is above 100 and ten times the usual of the run; or if the usual one is above 100 and a hundred
times the largest reward.

## Why it is bad
The advantage is the weight of an answer in the gradient. Divided by the spread of its group, it is at most the root of
the group's size less one: 4 with 17 answers. A value of thousands is a division by a spread of almost nothing: all
other answers of a group have the same reward (the spread without the answer itself is 0), or a batch holds one reward
alone. One such answer decides the whole step, and clipping the gradient does not take that from it.

## Example
```yaml
curve:
  train/reward: {from: 0.3, to: 0.5, steps: 60, noise: 0.01}
  train/advantages/max: {values: [2.6, 2.6, 7400, 2.6, 2.6, 2.6], steps: 60, noise: 0.01}
```

## Use instead
```yaml
curve:
  train/reward: {from: 0.3, to: 0.6, steps: 60, noise: 0.01}
  train/advantages/max: {from: 2.6, to: 2.5, steps: 60, noise: 0.01}
```

## Fix safety
Dividing by the spread of the whole group, the answer included, is safe and bounds the advantage. Not dividing at all
(Dr. GRPO) also bounds it, by the range of the rewards, and needs a higher learning rate. A larger epsilon alone still
leaves single answers with a large weight.

## References
- NVIDIA-NeMo/RL#1533, NVIDIA-NeMo/RL#4158 (leave-one-out baseline with normalised rewards); Liu et al. 2025 (Dr. GRPO),
  arXiv 2503.20783, on dividing by the spread
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.log.draw_log_curves_for_reports import describe_steps, draw_curves
from truetune.checks.rule import LogRule
from truetune.logs.run_log import EMPTY_CURVE, Curve

CURVES = (
    ("advantages/max", "advantages/min"),
    ("critic/advantages/max", "critic/advantages/min"),
    ("advantage/all/max", "advantage/all/min"),
)
"""The largest and the smallest advantage of a step: NeMo-RL, verl, prime-rl"""
MIN_RECORDS = 5
MAX_ADVANTAGE = 100.0
"""By a group's spread no more than the root of its size less one; by that of a batch of 10,000 answers, 100"""
TIMES_THE_USUAL = 10.0
TIMES_THE_REWARD = 100.0
"""Advantages that are not divided are at most as large as the range of the rewards. Only the mean of the rewards is
logged everywhere, and one answer in a hundred may have all of it"""


class Sizes(NamedTuple):
    """How large the advantages of each step are."""

    name: str
    """of the curve of the largest"""
    curve: Curve
    """the larger of the two sizes at each step"""


class AdvantagesExplode(LogRule):
    code = "LOG190"
    fault = Fault.POLICY_LOSS_WRONG
    symptoms = ("reward-does-not-rise", "nothing-is-learned")
    severity = "warning"
    kinds = ("reinforcement",)

    def unmet(self) -> Unmet | None:
        """Also unmet where no advantages are logged."""
        if (unmet := super().unmet()) is not None:
            return unmet
        if self._sizes().curve:
            return None
        return Unmet(f"the log has no {MIN_RECORDS} records of the largest advantage")

    def measurement_if_clean(self) -> str:
        """The usual and the largest size."""
        sizes = self._sizes()
        value = sizes.curve.value
        return f"the largest advantage of a step is {np.median(value):.3g} in the median, {value.max():.3g} at most"

    def findings(self) -> Iterator[Finding]:
        """The finding on advantages that are too large."""
        sizes = self._sizes()
        if self.subject.kind != "reinforcement" or not sizes.curve:
            return
        step, value = sizes.curve
        usual = float(np.median(value))
        limit = max(MAX_ADVANTAGE, TIMES_THE_USUAL * usual)
        if self._largest_reward() * TIMES_THE_REWARD < usual:
            limit = MAX_ADVANTAGE
        is_large = value > limit
        if not is_large.any():
            return
        worst = int(np.argmax(value))
        yield self.finding(
            f"the largest advantage is {value[worst]:,.0f} at {self.subject.unit_of_steps} {step[worst]:,.0f}, and"
            f" above {limit:.3g} at {int(is_large.sum()):,} of {step.size:,} logged steps ({usual:.3g} in the median):"
            " one answer outweighs its whole batch",
            "divide by the spread of the whole group, the answer itself included, or not at all: with a leave-one-out"
            " baseline set normalize_rewards: false (verl: norm_adv_by_std_in_grpo=False); leave out groups whose"
            " rewards are all equal",
            evidence=self._evidence(step[is_large]),
            count=int(is_large.sum()),
            total=int(step.size),
            figure=draw_curves(
                sizes.name, {sizes.name: sizes.curve}, {"largest": float(step[worst])}, log=True
            ),
        )

    def _sizes(self) -> Sizes:
        """The size of the advantages by step; empty where too few are logged."""
        for highest, lowest in CURVES:
            high, low = self.subject.curve(highest).finite(), self.subject.curve(lowest).finite()
            if high.step.size < MIN_RECORDS:
                continue
            value = np.abs(high.value)
            if low:
                value = np.maximum(value, np.abs(low.at(high.step)))
            return Sizes(highest, Curve(high.step, value))
        return Sizes("", EMPTY_CURVE)

    def _largest_reward(self) -> float:
        """The largest size of the logged rewards; 0 where there is none."""
        names = ("reward", "critic/score/max", "critic/score/min", "reward/all/max")
        curves = (self.subject.curve(name).finite() for name in names)
        return max((float(np.abs(one.value).max()) for one in curves if one), default=0.0)

    def _evidence(self, steps: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[str, ...]:
        """Where it is, and what the loss and the gradient do there."""
        lines = [describe_steps(steps)]
        for name in ("loss", "grad_norm"):
            curve = self.subject.curve(name).finite()
            there = curve.value[np.isin(curve.step, steps)]
            if there.size:
                worst = float(there[np.argmax(np.abs(there))])
                lines.append(
                    f"{name} is up to {worst:.3g} there, {np.median(curve.value):.3g} in the median"
                )
        return tuple(lines)
