"""The bonus on entropy is so large that the policy spreads over all tokens.

## What it does
Reads the coefficient of the entropy in the loss: `entropy_coef` (TRL), `entropy_coeff` (verl), `entropy_loss_coef`
(OpenRLHF). It warns from 0.01 on without TRL's adaptive control. In verl with GRPO it gives a note from 0.001 on, the
old default, which its example scripts set to 0.

## Why it is bad
The bonus is paid for every token of every answer, whatever the reward is. Advantages of GRPO are 0 on average, so a
small bonus wins over a whole run: entropy rises step by step, until answers are noise.

## Example
```yaml
config:
  actor_rollout_ref:
    model: {path: some/model}
    actor: {optim: {lr: 0.000001}, entropy_coeff: 0.02}
    rollout: {name: vllm, n: 8}
  algorithm: {adv_estimator: grpo}
  trainer: {total_epochs: 2, save_freq: 20}
```

## Use instead
```yaml
config:
  actor_rollout_ref:
    model: {path: some/model}
    actor: {optim: {lr: 0.000001}, entropy_coeff: 0}
    rollout: {name: vllm, n: 8}
  algorithm: {adv_estimator: grpo}
  trainer: {total_epochs: 2, save_freq: 20}
```

## Fix safety
Without the bonus, watch that the entropy does not fall to 0; a higher upper clip (0.28) keeps it up without paying for
noise.

## References
- verl-project/verl#781 (0.001 by default: "entropy explosion"), verl-project/verl#514, rllm-org/rllm#116,
  huggingface/trl#5584 (values of 0.01 to 0.02 are asked for, with a decay)
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
from truetune.settings.run_spec import Severity
from truetune.settings.stacks.config_draft import is_switched_on

# verl's report is of 0.001 over a whole run; PPO on games uses 0.01, with rewards far above 1.
MIN_BONUS_OF_WARNING, MIN_BONUS_OF_NOTE = 0.01, 0.001
ADAPTIVE_KEY = "use_adaptive_entropy"
"""TRL lowers the coefficient while the entropy is above its target"""


class EntropyBonusOutweighsTheReward(ConfigRule):
    code = "CFG209"
    fault = Fault.POLICY_MOVES_TOO_FAR
    severity = "warning"
    symptoms = ("reward-rises-model-is-worse",)
    methods = ("grpo",)
    stacks = ("trl", "verl", "openrlhf")

    def unmet(self) -> Unmet | None:
        """Also unmet where no coefficient is set."""
        if (lacking := super().unmet()) is not None:
            return lacking
        bonus = reward_training_setting(self.subject, "entropy coefficient")
        if not bonus.is_written or bonus.number is None:
            return Unmet("it is about a bonus on entropy, and none is set")
        return None

    def measurement_if_clean(self) -> str:
        """The coefficient."""
        bonus = reward_training_setting(self.subject, "entropy coefficient")
        return f"{bonus.key}: {bonus.value_as_text}"

    def findings(self) -> Iterator[Finding]:
        """The finding on a large bonus."""
        if self.unmet() is not None or is_switched_on(self.subject.raw.get(ADAPTIVE_KEY)):
            return
        bonus = reward_training_setting(self.subject, "entropy coefficient")
        assert bonus.number is not None, "unmet() asked"
        severity: Severity | None = None
        if bonus.number >= MIN_BONUS_OF_WARNING:
            severity = "warning"
        elif bonus.number >= MIN_BONUS_OF_NOTE and self.subject.stack == "verl":
            severity = "info"
        if severity is None:
            return
        yield self.finding(
            f"{bonus.key} is {bonus.value_as_text}: a bonus for every token's entropy, whatever the reward is, makes"
            " the policy spread over all tokens in a long run",
            f"set {bonus.key} to 0",
            severity=severity,
            cases=[case_of_setting(self.subject, bonus)],
        )
