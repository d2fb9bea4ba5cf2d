"""The KL to the reference is subtracted from the reward and added to the loss as well.

## What it does
Looks at verl with `algorithm.use_kl_in_reward: true` and `actor.use_kl_loss: true`. It fires if both coefficients are
above 0.

## Why it is bad
The policy is held at its reference twice, with two coefficients and two estimators. In GRPO the KL in the reward also
changes the order of the answers of a group: of two right answers the one nearer to the reference gets a positive
advantage and the other a negative one. verl chose between the two with one switch until March 2025, so scripts set both
by habit.

## Example
```yaml
config:
  actor_rollout_ref:
    model: {path: some/model}
    actor: {optim: {lr: 0.000001}, use_kl_loss: true, kl_loss_coef: 0.001}
    rollout: {name: vllm, n: 8}
  algorithm: {adv_estimator: grpo, use_kl_in_reward: true, kl_ctrl: {kl_coef: 0.001}}
  trainer: {total_epochs: 2, save_freq: 20}
```

## Use instead
```yaml
config:
  actor_rollout_ref:
    model: {path: some/model}
    actor: {optim: {lr: 0.000001}, use_kl_loss: true, kl_loss_coef: 0.001}
    rollout: {name: vllm, n: 8}
  algorithm: {adv_estimator: grpo, use_kl_in_reward: false}
  trainer: {total_epochs: 2, save_freq: 20}
```

## Fix safety
With one of them the policy moves further. For GRPO keep the one in the loss, for PPO and REINFORCE++ the one in the
reward.

## References
- verl-project/verl#644 (both were one switch), verl-project/verl#3276, verl-project/verl#211, verl-project/verl#509
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
from truetune.settings.stacks.read_nested_rl_settings import ACTOR

IN_REWARD, IN_LOSS = "algorithm.use_kl_in_reward", f"{ACTOR}.use_kl_loss"
REWARD_COEFFICIENT, LOSS_COEFFICIENT = "algorithm.kl_ctrl.kl_coef", f"{ACTOR}.kl_loss_coef"
DEFAULT_COEFFICIENT = 0.001
"""Of verl 0.8, for both"""


class KlPenaltyCountedTwice(ConfigRule):
    code = "CFG205"
    fault = Fault.POLICY_LOSS_WRONG
    severity = "warning"
    symptoms = ("reward-rises-model-is-worse",)
    methods = ("grpo", "ppo")
    stacks = ("verl",)

    def measurement_if_clean(self) -> str:
        """Which of the two penalties are on, as 0 or 1."""
        switches = (setting_or_default(self.subject, key) for key in (IN_REWARD, IN_LOSS))
        return ", ".join(f"{one.key}: {int(is_switched_on(one.value))}" for one in switches)

    def findings(self) -> Iterator[Finding]:
        """The finding on two penalties."""
        if self.unmet() is not None:
            return
        config = self.subject
        switches = [setting_or_default(config, key) for key in (IN_REWARD, IN_LOSS)]
        coefficients = [
            setting_or_default(config, key, DEFAULT_COEFFICIENT)
            for key in (REWARD_COEFFICIENT, LOSS_COEFFICIENT)
        ]
        if not all(is_switched_on(one.value) for one in switches):
            return
        if not all(one.number for one in coefficients):
            return
        kept, dropped = (IN_LOSS, IN_REWARD)
        if config.spec.training.method == "ppo":
            kept, dropped = dropped, kept
        yield self.finding(
            f"{IN_REWARD} and {IN_LOSS} are both on: the KL to the reference counts twice, with coefficients of"
            f" {coefficients[0].value_as_text} and {coefficients[1].value_as_text}",
            f"set {dropped} to false, and keep {kept}",
            cases=[case_of_setting(config, one) for one in switches],
        )
