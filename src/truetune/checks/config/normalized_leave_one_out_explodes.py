"""A leave-one-out baseline is divided by the spread of the others, which is 0 for the only right answer.

## What it does
Looks at NeMo RL with `grpo.use_leave_one_out_baseline: true` and `grpo.normalize_rewards: true`.

## Why it is bad
For the only right answer of a group the others all have a reward of 0, so their spread is 0, and the advantage is
divided by almost nothing. A report shows advantages of 1,000,000; another one a gradient norm of 35 in one step, from
rounding alone. Just the prompts at the edge of what the model can do are hit.

## Example
```yaml
config:
  policy: {model_name: some/model, generation: {backend: vllm, temperature: 1.0}}
  grpo:
    num_prompts_per_step: 32
    num_generations_per_prompt: 16
    normalize_rewards: true
    use_leave_one_out_baseline: true
  checkpointing: {enabled: true}
```

## Use instead
```yaml
config:
  policy: {model_name: some/model, generation: {backend: vllm, temperature: 1.0}}
  grpo:
    num_prompts_per_step: 32
    num_generations_per_prompt: 16
    normalize_rewards: true
    use_leave_one_out_baseline: false
  checkpointing: {enabled: true}
```

## Fix safety
With the mean of the whole group, the advantage of the only right answer of 16 is about 3.75. `normalize_rewards: false`
with the leave-one-out baseline is RLOO, and as safe.

## References
- NVIDIA-NeMo/RL#1518, NVIDIA-NeMo/RL#4161 (the rest of a float subtraction passes the guard)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.settings_of_reward_training import (
    case_of_setting,
    setting_or_default,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule
from truetune.settings.stacks.config_draft import is_switched_on

NORMALIZED, LEAVES_ONE_OUT = "grpo.normalize_rewards", "grpo.use_leave_one_out_baseline"


class NormalizedLeaveOneOutExplodes(ConfigRule):
    code = "CFG208"
    fault = Fault.POLICY_LOSS_WRONG
    severity = "warning"
    symptoms = ("reward-does-not-rise",)
    methods = ("grpo",)
    stacks = ("nemo-rl",)

    def measurement_if_clean(self) -> str:
        """The two switches, as 0 or 1."""
        switches = (setting_or_default(self.subject, key) for key in (NORMALIZED, LEAVES_ONE_OUT))
        return ", ".join(f"{one.key}: {int(is_switched_on(one.value))}" for one in switches)

    def findings(self) -> Iterator[Finding]:
        """The finding on a spread that may be 0."""
        if self.unmet() is not None:
            return
        switches = [setting_or_default(self.subject, key) for key in (NORMALIZED, LEAVES_ONE_OUT)]
        if not all(is_switched_on(one.value) for one in switches):
            return
        yield self.finding(
            f"{NORMALIZED} and {LEAVES_ONE_OUT} are both on: the only right answer of a group is divided by the spread"
            " of the wrong ones, which is 0",
            f"set {LEAVES_ONE_OUT} to false",
            cases=[case_of_setting(self.subject, one) for one in switches],
        )
