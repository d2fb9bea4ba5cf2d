"""One rollout is divided into so many updates that the last ones train on answers of another policy.

## What it does
For trainings by rewards, counts the updates between two rollouts: verl's `train_batch_size / ppo_mini_batch_size` times
`ppo_epochs`, TRL's and ms-swift's `steps_per_generation / gradient_accumulation_steps` times `num_iterations`,
OpenRLHF's `rollout_batch_size` times `n_samples_per_prompt` by `train_batch_size`, times `max_epochs`, and NeMo RL's
answers of a step by `train_global_batch_size`. It fires above 64.

## Why it is bad
The answers come from the policy before the first update. After dozens of updates the probabilities of their tokens are
others: most ratios leave the clip range, and their tokens have no gradient. Reports show a clip fraction that rises
within each step, an entropy that jumps, and a collapse of the reward. Published recipes make 1 (DeepSeekMath), 4 (GSPO,
verl's examples), 8 (OpenRLHF's examples), 16 (DAPO) and up to 64 updates (SimpleRL); 16 are already blamed for
instability.

## Example
```yaml
config:
  actor_rollout_ref:
    model: {path: some/model}
    actor: {optim: {lr: 0.000001}, ppo_mini_batch_size: 16, ppo_epochs: 2}
    rollout: {name: vllm, n: 8}
  data: {train_batch_size: 1024}
  algorithm: {adv_estimator: grpo}
  trainer: {total_epochs: 2, save_freq: 20}
```

## Use instead
```yaml
config:
  actor_rollout_ref:
    model: {path: some/model}
    actor: {optim: {lr: 0.000001}, ppo_mini_batch_size: 256}
    rollout: {name: vllm, n: 8}
  data: {train_batch_size: 1024}
  algorithm: {adv_estimator: grpo}
  trainer: {total_epochs: 2, save_freq: 20}
```

## Fix safety
Larger updates are fewer: with the same rate the model moves less for each rollout. A smaller rollout keeps the size of
the updates, and samples more often.

## References
- PRIME-RL/Entropy-Mechanism-of-RL#20, BytedTsinghua-SIA/DAPO#40 (policy drift within 16 updates)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.settings_of_reward_training import case_of_setting
from truetune.checks.config.evidence.updates_on_one_rollout import COUNTS, updates_on_one_rollout
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule

# The most of the published recipes: SimpleRL's PPO with OpenRLHF, 1,024 prompts of 8 answers in batches of 128.
MAX_UPDATES = 64


class ManyUpdatesOnOneRollout(ConfigRule):
    code = "CFG210"
    fault = Fault.POLICY_MOVES_TOO_FAR
    severity = "warning"
    symptoms = ("reward-does-not-rise",)
    methods = ("grpo", "ppo")
    stacks = tuple(COUNTS)

    def unmet(self) -> Unmet | None:
        """Also unmet where the batches are not known."""
        if (lacking := super().unmet()) is not None:
            return lacking
        if updates_on_one_rollout(self.subject) is None:
            return Unmet("the batches of a rollout and of an update are not known")
        return None

    def measurement_if_clean(self) -> str:
        """The updates on one rollout."""
        updates = updates_on_one_rollout(self.subject)
        assert updates is not None, "else the rule is not judged"
        return f"{updates.number:,.0f} updates on one rollout"

    def findings(self) -> Iterator[Finding]:
        """The finding on many updates."""
        updates = updates_on_one_rollout(self.subject) if self.unmet() is None else None
        if updates is None or updates.number <= MAX_UPDATES:
            return
        names = ", ".join(f"{one.key} {one.value_as_text}" for one in updates.settings)
        yield self.finding(
            f"each rollout is trained in {updates.number:,.0f} updates ({names}): the last ones train on answers"
            f" of a policy that is {updates.number - 1:,.0f} updates old",
            "enlarge the batch of an update, or sample fewer answers at once, for 1 to 16 updates on a rollout",
            cases=[case_of_setting(self.subject, one) for one in updates.settings],
        )
