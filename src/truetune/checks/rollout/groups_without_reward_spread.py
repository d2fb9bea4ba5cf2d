"""All completions of a group have the same reward, in every group that was sampled.

## What it does

Counts the groups whose completions all have one reward. It fires where that is every group of the first rollouts, of
two at least.

## Why it is bad

An advantage is a reward less that of the others in its group: it is 0 for all of them, and nothing is learned. The
first rollouts say it after one step; `no-reward-signal` says it of a finished log.

## Example

```python
def reward(completions, **columns):
    return [1.0 for _ in completions]

run = grpo(trl.GRPOTrainer, reward=reward)
```

## Use instead

```python
def reward(completions, **columns):
    return [float(len(one[0]["content"])) for one in completions]

run = grpo(trl.GRPOTrainer, reward=reward)
```

## Fix safety

Where the reward is 0 for every answer, call the reward functions on the rows' own references first: where these get
0 too, no answer can be right. A reward that is rare at the start needs easier prompts or more completions.

## References

- Yu et al. 2025 (DAPO), arXiv 2503.14476, section 3.2; huggingface/trl#2703
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.auditing.rollout_run import RolloutRun
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rollout.evidence.advantages_by_settings import weighted_rewards
from truetune.checks.rollout.evidence.reasons_rollouts_cannot_judge import (
    NO_REWARDS,
    reason_without_rewards_or_loss,
)
from truetune.checks.rule import RolloutRule

# Chosen, not measured: one prompt may well be too easy or too hard for all answers.
MIN_GROUPS = 2
TOO_FEW = Unmet(f"fewer than {MIN_GROUPS} groups were sampled")


class GroupsWithoutRewardSpread(RolloutRule):
    code = "ROL013"
    fault = Fault.COMPLETIONS_GET_EQUAL_REWARDS
    severity = "warning"
    symptoms = ("reward-does-not-rise",)
    moot_where = ("reward-function-scores-nothing",)

    def __init__(self, subject: RolloutRun) -> None:
        super().__init__(subject)
        self.groups = 0
        self.flat = 0

    def unmet(self) -> Unmet | None:
        if not self.groups:
            return super().unmet() or reason_without_rewards_or_loss(self.subject, NO_REWARDS)
        return TOO_FEW if self.groups < MIN_GROUPS else None

    def findings(self) -> Iterator[Finding]:
        cases: list[Case] = []
        for number, step in self.subject.numbered_steps():
            # The first process has the rewards of all of them.
            rewards = weighted_rewards(step) if step.rank == 0 else None
            if rewards is None or step.settings.num_generations < 2:
                continue
            for group in rewards.reshape(-1, step.settings.num_generations):
                self.groups += 1
                scored = group[~np.isnan(group)]
                if not scored.size or float(np.ptp(scored)) == 0.0:
                    self.flat += 1
                    value = f"{scored[0]:.4g}" if scored.size else "none"
                    cases.append(
                        Case(f"rollout {number}: all {len(group)} rewards of a group are {value}")
                    )
        if self.groups < MIN_GROUPS or self.flat < self.groups:
            return
        yield self.finding(
            f"in all {self.groups:,} groups every completion has the same reward: every advantage is 0, and nothing is"
            " learned",
            "call the reward functions on answers that should and should not get the reward; else take easier prompts,"
            " more completions (num_generations), or a higher temperature",
            cases=cases,
            count=self.flat,
            total=self.groups,
        )

    def measurement_if_clean(self) -> Measurement:
        """How many groups have one reward."""
        return make_count_measurement(
            "groups whose completions all have one reward", self.flat, self.groups
        )
