"""The advantages of a rollout are not what its rewards and settings make them.

## What it does

Computes the advantages from the rewards of each function: their weights, the mean of the group, the spread that
`scale_rewards` names, or RLOO's mean of the others. It compares them with those that reach the loss, and says which
other form they have where one fits: the opposite sign, another divisor, other groups. Of several processes, each one's
rewards are compared with what its functions returned: they may be those of another process.

## Why it is bad

The advantage says which answers become likelier, and by how much. With the wrong sign the policy learns what it shall
not do; with wrong groups each answer is compared with answers to other questions. The loss shows neither.

## Example

```python
class Reversed(trl.GRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        output["advantages"] = -output["advantages"]
        return output

run = grpo(Reversed)
```

## Use instead

```python
run = grpo(trl.GRPOTrainer)
```

## Fix safety

There is no automatic fix. Advantages of your own design are no fault: leave the rule out with `--ignore`.

## References

- XU-YIJIE/grpo-flat#2; Shao et al. 2024 (GRPO), arXiv 2402.03300, section 4.1
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from truetune.auditing.rollout_run import RolloutRun
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.judgement import Unmet
from truetune.checks.measurement_without_findings import Measurement, make_count_measurement
from truetune.checks.rollout.evidence.advantages_by_settings import (
    OF_OTHER_PROCESS,
    differing_advantages,
    expected_advantages,
    name_form_of_advantages,
    rewards_of_other_process,
)
from truetune.checks.rollout.evidence.reasons_rollouts_cannot_judge import (
    NO_REWARDS,
    reason_without_rewards_or_loss,
)
from truetune.checks.rule import RolloutRule


class AdvantagesAreNotOfTheirRewards(RolloutRule):
    code = "ROL011"
    fault = Fault.POLICY_LOSS_WRONG
    severity = "error"
    symptoms = ("reward-does-not-rise", "agent-training")
    moot_where = ("group-holds-several-prompts",)

    def __init__(self, subject: RolloutRun) -> None:
        super().__init__(subject)
        self.compared = 0

    def unmet(self) -> Unmet | None:
        if self.compared:
            return None
        unknown = [
            name for step in self.subject.steps for name in step.settings.unknown_to_advantages
        ]
        if unknown:
            return reason_without_rewards_or_loss(
                self.subject,
                Unmet(f"{unknown[0]} makes the advantages, which are not computed here"),
            )
        return super().unmet() or NO_REWARDS

    def findings(self) -> Iterator[Finding]:
        cases: list[Case] = []
        forms: set[str] = set()
        for number, step in self.subject.numbered_steps():
            expected = expected_advantages(step)
            if expected is None or step.advantages.ndim != 1:
                continue
            self.compared += step.rows
            returned = rewards_of_other_process(step)
            if returned is not None:
                forms.add(OF_OTHER_PROCESS)
                cases += [
                    Case(
                        f"rollout {number}, completion {row + 1} of rank {step.rank}: the function returned {value:.4g}"
                    )
                    for row, value in enumerate(returned.tolist())
                ]
                continue
            differs = differing_advantages(step, expected)
            if not differs.any():
                continue
            forms.add(name_form_of_advantages(step))
            cases += [
                Case(
                    f"rollout {number}, completion {row + 1}: {step.advantages[row]:.4g} instead of {expected[row]:.4g}"
                )
                for row in np.flatnonzero(differs).tolist()
            ]
        if not cases:
            return
        # Several rollouts have one form, unless one of them can't tell two forms apart.
        form = next(iter(forms)) if len(forms) == 1 else ""
        yield self.finding(
            f"{len(cases):,} of {self.compared:,} advantages are not those of their rewards"
            + (f": {form}" if form else ""),
            f"compute them as the settings say ({_describe_settings(self.subject)}), or change the settings",
            cases=cases,
            count=len(cases),
            total=self.compared,
        )

    def measurement_if_clean(self) -> Measurement:
        """How many advantages differ."""
        return make_count_measurement(
            "advantages that are not those of their rewards", 0, self.compared
        )


def _describe_settings(run: RolloutRun) -> str:
    """The settings that say what advantages are."""
    settings = run.steps[0].settings
    if settings.baseline == "leave-one-out":
        return f"the mean of the other {settings.num_generations - 1} rewards of the group is subtracted"
    return f"scale_rewards={settings.scale_rewards!r}, num_generations={settings.num_generations}"
