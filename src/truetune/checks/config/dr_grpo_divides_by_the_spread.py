"""The loss is that of Dr. GRPO, but advantages are still divided by the spread of their group.

## What it does
Looks at TRL and ms-swift with `loss_type: dr_grpo`, and at verl with `loss_agg_mode: seq-mean-token-sum-norm`. It fires
if advantages are scaled by the standard deviation of their group: `scale_rewards` is `group` or true (TRL's default),
or `norm_adv_by_std_in_grpo` is true (verl's default).

## Why it is bad
Dr. GRPO takes two divisions out: that by the length of each answer, and that by the spread of the rewards. With only
one of them gone, prompts that are nearly always or hardly ever solved still count most, which is the bias that the
method removes. Results differ from the published ones, and no message says it.

## Example
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  num_generations: 8
  max_completion_length: 512
  loss_type: dr_grpo
```

## Use instead
```yaml
config:
  model_name_or_path: some/model
  dataset_name: some/rows
  num_generations: 8
  max_completion_length: 512
  loss_type: dr_grpo
  scale_rewards: none
```

## Fix safety
Advantages then have the size of the rewards. If rewards are not between 0 and 1, a lower learning rate is needed.

## References
- huggingface/trl#3256 (Dr. GRPO's loss and `scale_rewards`), huggingface/trl#3138,
  thinking-machines-lab/tinker-cookbook#589; Liu et al. 2025, arXiv 2503.20783
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.settings_of_reward_training import (
    case_of_setting,
    reward_training_setting,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule

DR_GRPO_DENOMINATORS = {
    "trl": ("dr_grpo",),
    "ms-swift": ("dr_grpo",),
    "verl": ("seq-mean-token-sum-norm",),
}
"""Stack -> values of the loss's denominator that are Dr. GRPO's: a constant"""
SCALED_VALUES = ("true", "group")
"""Values with which advantages are divided by the spread of their own group; `batch` divides all by one number"""


class DrGrpoDividesByTheSpread(ConfigRule):
    code = "CFG204"
    fault = Fault.POLICY_LOSS_WRONG
    severity = "warning"
    symptoms = ("reward-does-not-rise",)
    methods = ("grpo",)
    stacks = tuple(DR_GRPO_DENOMINATORS)

    def unmet(self) -> Unmet | None:
        """Also unmet for another loss than Dr. GRPO's."""
        if (lacking := super().unmet()) is not None:
            return lacking
        config = self.subject
        loss = reward_training_setting(config, "loss denominator")
        if not loss.is_written or loss.value not in DR_GRPO_DENOMINATORS[config.stack]:
            return Unmet("it is about the loss of Dr. GRPO")
        return None

    def measurement_if_clean(self) -> str:
        """The loss and the scale of its advantages."""
        loss = reward_training_setting(self.subject, "loss denominator")
        scale = reward_training_setting(self.subject, "scaled by the spread")
        return f"{loss.key}: {loss.value_as_text}, {scale.key}: {scale.value_as_text}"

    def findings(self) -> Iterator[Finding]:
        """The finding on advantages that are scaled."""
        if self.unmet() is not None:
            return
        config = self.subject
        loss = reward_training_setting(config, "loss denominator")
        scale = reward_training_setting(config, "scaled by the spread")
        if scale.value is None or scale.value_as_text.lower() not in SCALED_VALUES:
            return
        off = "false" if config.stack == "verl" else "none"
        yield self.finding(
            f"{loss.key} {loss.value_as_text} is the loss of Dr. GRPO, but {scale.key} is {scale.value_as_text}:"
            " advantages are divided by the spread of their group, which Dr. GRPO takes out",
            f"set {scale.key} to {off}",
            cases=[case_of_setting(config, loss), case_of_setting(config, scale)],
        )
