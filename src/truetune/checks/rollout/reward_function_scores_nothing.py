"""A reward function gives no number for the completions it is asked about.

## What it does

Counts what each reward function returned: None, NaN and infinite values. It fires where a function scored no completion
of the first rollouts, and where it returned NaN or an infinite number, which is never meant.

## Why it is bad

TRL takes None and NaN for "not applicable": the completion gets the other functions' rewards alone, or none, and
no warning is printed. An infinite reward makes every advantage of its group NaN, which becomes 0.

## Example

```python
def reward(completions, **columns):
    return [None for _ in completions]

run = grpo(trl.GRPOTrainer, reward=[reward, length_reward])
```

## Use instead

```python
run = grpo(trl.GRPOTrainer, reward=[length_reward])
```

## Fix safety

There is no automatic fix. A function may rightly leave rows of another task out.

## References

- huggingface/trl#3079
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.auditing.rollout_run import RolloutRun
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rollout.evidence.reasons_rollouts_cannot_judge import (
    NO_REWARDS,
    reason_without_rewards_or_loss,
)
from truetune.checks.rule import RolloutRule
from truetune.probe.rollout_step import RewardCall


class RewardFunctionScoresNothing(RolloutRule):
    code = "ROL015"
    fault = Fault.REWARD_FUNCTION_FAILS
    severity = "warning"
    symptoms = ("reward-does-not-rise",)

    def __init__(self, subject: RolloutRun) -> None:
        super().__init__(subject)
        self.values = 0

    def unmet(self) -> Unmet | None:
        return super().unmet() or (
            None if self.values else reason_without_rewards_or_loss(self.subject, NO_REWARDS)
        )

    def findings(self) -> Iterator[Finding]:
        for name, values in self._values_by_function().items():
            self.values += len(values)
            scored = np.isfinite(values)
            infinite = int(np.isinf(values).sum())
            if scored.all() or (scored.any() and not infinite and not self._returned_nan(name)):
                continue
            yield self._finding(name, values)

    def measurement_if_clean(self) -> Measurement:
        """How many rewards were looked at."""
        return make_count_measurement("rewards that are NaN or infinite", 0, self.values)

    def _values_by_function(self) -> dict[str, np.ndarray]:
        """All rewards of each function; NaN where it gave none."""
        values: dict[str, list[np.ndarray]] = {}
        for step in self.subject.steps:
            if step.rewards is None or step.rank:
                continue
            names = step.reward_names or tuple(map(str, range(step.rewards.shape[1])))
            for name, column in zip(names, step.rewards.T, strict=False):
                values.setdefault(name, []).append(column)
        return {name: np.concatenate(parts) for name, parts in values.items()}

    def _calls(self, name: str) -> list[RewardCall]:
        """The recorded calls of a function."""
        return [
            call for step in self.subject.steps for call in step.reward_calls if call.name == name
        ]

    def _returned_nan(self, name: str) -> bool:
        """Did a function return NaN itself? None becomes NaN in the trainer, and is meant."""
        return any(
            value is not None and bool(np.isnan(value))
            for call in self._calls(name)
            for value in call.values
        )

    def _finding(self, name: str, values: np.ndarray) -> Finding:
        """The finding on one function."""
        missing, infinite = int(np.isnan(values).sum()), int(np.isinf(values).sum())
        what = " and ".join(
            filter(
                None,
                (
                    f"{missing:,} times {'NaN' if self._returned_nan(name) else 'none'}"
                    if missing
                    else "",
                    f"{infinite:,} times an infinite number" if infinite else "",
                ),
            )
        )
        cases = [
            Case(f"{name} returned {', '.join(map(str, call.values[:4]))}, ...")
            for call in self._calls(name)
        ]
        return self.finding(
            f"the reward function {name} gave {what}, of {values.size:,} rewards",
            f"call {name} on these completions by hand; return None only for rows that it is not about",
            cases=cases,
            count=missing + infinite,
            total=values.size,
        )
