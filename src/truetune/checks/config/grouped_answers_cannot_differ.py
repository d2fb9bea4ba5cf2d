"""The answers to a prompt are compared with each other, and they cannot differ.

## What it does
For GRPO, RLOO and their kin (TRL, verl, NeMo RL, ms-swift, OpenRLHF): looks at how many answers are sampled for a
prompt, and how. It speaks of a group of one answer, and of answers that are sampled greedily: at a temperature of 0, or
from the most likely token alone (`top_k: 1`). Of verl's validation, it says where several answers for a prompt are
sampled greedily (`val_kwargs.n` beside the temperature of 0 that is the default there).

## Why it is bad
The advantage of an answer is its reward less the mean of its group. Greedy answers are equal, and so are their rewards:
every advantage is 0, and nothing is learned. Of one answer, verl takes 0 for the mean: the bare reward is the
advantage, an answer is never pushed down by a reward of 0, and the steps are noisy. NeMo RL takes the reward itself for
the mean, and learns nothing. A mean over equal answers of a validation is that of one answer, at several times the
cost.

## Example
```yaml
config:
  actor_rollout_ref:
    model: {path: some/model}
    actor: {optim: {lr: 0.000001}}
    rollout: {name: vllm, n: 1}
  algorithm: {adv_estimator: grpo}
  trainer: {total_epochs: 2, save_freq: 20}
```

## Use instead
```yaml
config:
  actor_rollout_ref:
    model: {path: some/model}
    actor: {optim: {lr: 0.000001}}
    rollout: {name: vllm, n: 8}
  algorithm: {adv_estimator: grpo}
  trainer: {total_epochs: 2, save_freq: 20}
```

## Fix safety
More answers a prompt take so much more time for sampling. Take fewer prompts a step where that is too much. With `gae`
(PPO) one answer a prompt is right: a critic gives the mean.

## References
- rllm-org/rllm#917 (one rollout a prompt), verl-project/verl#180
- verl 0.8, verl/trainer/ppo/core_algos.py (`compute_grpo_outcome_advantage`); NeMo RL, nemo_rl/algorithms/utils.py
  (`calculate_baseline_and_std_per_prompt`)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.sampling_settings_of_reward_training import (
    AnswerSampling,
    answer_sampling,
    validation_sampling,
)
from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule

FEW, MANY = 4, 16
"""Answers a prompt in published recipes"""


class GroupedAnswersCannotDiffer(ConfigRule):
    code = "CFG181"
    symptoms = ("nothing-is-learned",)
    severity = "error"
    methods = ("grpo",)

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet for a program whose sampling is not known, and an estimator that compares no group.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        if answer_sampling(self.subject) is None:
            return Unmet("it is about trainings that compare the answers of a group")
        return None

    def measurement_if_clean(self) -> str:
        """What was measured: the answers of a group, and the temperature."""
        sampling = answer_sampling(self.subject)
        assert sampling is not None, "else the rule is not judged"
        return ", ".join(
            f"{one.key} {one.value_as_text}"
            for one in (sampling.group, sampling.temperature)
            if one.value_as_text
        )

    def findings(self) -> Iterator[Finding]:
        sampling = answer_sampling(self.subject) if self.unmet() is None else None
        if sampling is None:
            return
        if sampling.group.value == 1 and not sampling.refuses_one:
            yield self._finding_on_group_of_one_answer(sampling)
        elif sampling.setting_making_answers_greedy is not None:
            yield self._finding_on_greedy_answers(sampling)
        yield from self._findings_on_greedy_validation_answers()

    def _finding_on_group_of_one_answer(self, sampling: AnswerSampling) -> Finding:
        """The finding on a group of one answer."""
        group = sampling.group
        return self.finding(
            f"{group.key} is {group.value_as_text}: the one answer to a prompt has none to be compared with"
            f" ({sampling.estimator}), and {sampling.fate_of_one}",
            f"set {group.key} to {FEW} to {MANY}",
            cases=[setting_case(self.subject, group.value_as_text, group.key)],
        )

    def _finding_on_greedy_answers(self, sampling: AnswerSampling) -> Finding:
        """The finding on answers that are sampled greedily."""
        greedy = sampling.setting_making_answers_greedy
        assert greedy is not None, "the caller asked"
        return self.finding(
            f"{greedy.key} is {greedy.value_as_text}: all answers to a prompt are the most"
            " likely one, their rewards are"
            " equal, and every advantage is 0",
            f"set {sampling.temperature.key} to 1.0"
            if greedy is sampling.temperature
            else f"leave {greedy.key} out",
            cases=[setting_case(self.subject, greedy.value_as_text, greedy.key)],
        )

    def _findings_on_greedy_validation_answers(self) -> Iterator[Finding]:
        """The finding on several greedy answers to each prompt of a validation."""
        validation = validation_sampling(self.subject)
        if validation is None or validation.setting_making_answers_greedy is None:
            return
        group, temperature = validation.group, validation.temperature
        yield self.finding(
            f"{group.key} {group.value_as_text} makes equal answers: {temperature.key} is"
            f" {temperature.value_as_text}, so that the"
            " mean over them is that of one",
            f"set {temperature.key} to 0.6 and do_sample beside it to true, or {group.key} to 1",
            severity="warning",
            cases=[
                setting_case(self.subject, group.value_as_text, group.key),
                setting_case(self.subject, temperature.value_as_text, temperature.key),
            ],
        )
