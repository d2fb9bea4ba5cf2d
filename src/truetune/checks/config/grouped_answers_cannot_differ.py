"""Training compares the answers to a prompt with each other, but they cannot differ.

## What it does
For GRPO, RLOO and related methods (TRL, verl, NeMo RL, ms-swift, OpenRLHF, prime-rl), checks how many answers are
sampled per prompt, and how. It fires for a group of one answer and for greedy sampling: a temperature of 0, or `top_k:
1`. A distillation on the student's own answers (verl's `distillation.enabled`, ms-swift's `teacher_model`) compares
none. For verl's validation, it fires if several answers per prompt are sampled greedily (`val_kwargs.n` above 1 with
the default temperature of 0).

## Why it is bad
The advantage of an answer is its reward minus the mean of its group. Greedy answers are equal, and so are their
rewards: every advantage is 0, and the model learns nothing. With one answer, verl takes 0 as the mean: the reward
itself is the advantage, a reward of 0 never makes an answer less likely, and the steps are noisy. NeMo RL takes the
reward itself as the mean, and the model learns nothing; prime-rl drops such answers. TRL, ms-swift and OpenRLHF stop,
OpenRLHF only once Ray runs its job. In validation, the mean over equal
answers is that of one answer, at several times the cost.

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
More answers per prompt take proportionally more time to sample; use fewer prompts per step if that is too slow. With
`gae` (PPO), one answer per prompt is right: a critic gives the mean.

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
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule

FEW, MANY = 4, 16
"""Answers a prompt in published recipes"""


class GroupedAnswersCannotDiffer(ConfigRule):
    code = "CFG181"
    fault = Fault.SAMPLES_OF_PROMPT_ARE_COPIES
    symptoms = ("reward-does-not-rise", "nothing-is-learned")
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
        if sampling.group.value == 1:
            yield self._finding_on_group_of_one_answer(sampling)
        elif sampling.setting_making_answers_greedy is not None:
            yield self._finding_on_greedy_answers(sampling)
        yield from self._findings_on_greedy_validation_answers()

    def _finding_on_group_of_one_answer(self, sampling: AnswerSampling) -> Finding:
        """The finding on a group of one answer."""
        group = sampling.group
        return self.finding(
            f"{group.key} is {group.value_as_text}: {sampling.estimator} has no other answer to the prompt to"
            f" compare with, and {sampling.fate_of_one}",
            f"set {group.key} to a value from {FEW} to {MANY}",
            cases=[setting_case(self.subject, group.value_as_text, group.key)],
        )

    def _finding_on_greedy_answers(self, sampling: AnswerSampling) -> Finding:
        """The finding on answers that are sampled greedily."""
        greedy = sampling.setting_making_answers_greedy
        assert greedy is not None, "the caller asked"
        return self.finding(
            f"{greedy.key} is {greedy.value_as_text}: all answers to a prompt are the same, so every advantage is 0"
            " and the model learns nothing",
            f"set {sampling.temperature.key} to 1.0"
            if greedy is sampling.temperature
            else f"remove {greedy.key}",
            cases=[setting_case(self.subject, greedy.value_as_text, greedy.key)],
        )

    def _findings_on_greedy_validation_answers(self) -> Iterator[Finding]:
        """The finding on several greedy answers to each prompt of a validation."""
        validation = validation_sampling(self.subject)
        if validation is None or validation.setting_making_answers_greedy is None:
            return
        group, temperature = validation.group, validation.temperature
        yield self.finding(
            f"{group.key} is {group.value_as_text}, but {temperature.key} is {temperature.value_as_text}: all"
            " answers to a prompt are the same, so sampling several is wasted",
            f"set {temperature.key} to 0.6 and do_sample next to it to true, or set {group.key} to 1",
            severity="warning",
            cases=[
                setting_case(self.subject, group.value_as_text, group.key),
                setting_case(self.subject, temperature.value_as_text, temperature.key),
            ],
        )
