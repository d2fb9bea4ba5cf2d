"""The penalty on long answers is for another limit than that of the answers.

## What it does
With verl's overlong buffer, compares its length, `max_resp_len` of the reward manager and `data.max_response_length`.
verl punishes the tokens beyond `max_resp_len - len`, up to `penalty_factor` at `max_resp_len`. It fires where the
buffer is as long as an answer may be, where `max_resp_len` is not set, and where it is not the limit of the answers.

## Why it is bad
With a buffer as long as the limit every answer is punished from its first token; with a longer one, or without
`max_resp_len`, verl stops at its start. A smaller `max_resp_len` punishes long answers by more than the factor, and
without bound; with a larger one, cut answers get a part of the penalty, or none.

## Example
```yaml
config:
  actor_rollout_ref:
    model: {path: some/model}
    actor: {optim: {lr: 0.000001}}
    rollout: {name: vllm, n: 8}
  data: {max_prompt_length: 1024, max_response_length: 4096}
  reward_model:
    reward_kwargs: {max_resp_len: 4096, overlong_buffer_cfg: {enable: true, len: 4096, penalty_factor: 1.0}}
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
  data: {max_prompt_length: 1024, max_response_length: 4096}
  reward_model:
    reward_kwargs: {max_resp_len: 4096, overlong_buffer_cfg: {enable: true, len: 1024, penalty_factor: 1.0}}
  algorithm: {adv_estimator: grpo}
  trainer: {total_epochs: 2, save_freq: 20}
```

## Fix safety
DAPO takes a buffer of a fifth of the limit (4,096 of 20,480 tokens). Another buffer is another reward: what was
reached before can't be compared.

## References
- arXiv:2503.14476 (DAPO, soft overlong punishment), verl-project/verl `verl/workers/reward_manager/dapo.py`
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from truetune.checks.config.evidence.settings_of_reward_training import (
    RewardTrainingSetting,
    case_of_setting,
    reward_training_setting,
    setting_or_default,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config

# Today's name, that of 2025, and that of DAPO's recipe, which takes the limit of the answers by itself.
BUFFERS = (
    ("reward.reward_kwargs.overlong_buffer_cfg", "reward.reward_kwargs.max_resp_len"),
    ("reward_model.reward_kwargs.overlong_buffer_cfg", "reward_model.reward_kwargs.max_resp_len"),
    ("reward_model.overlong_buffer", ""),
)
"""The table of the buffer, and the key of the limit that the reward manager is told; empty: the limit of the answers"""


@dataclass(frozen=True, slots=True)
class _OverlongBuffer:
    """The buffer of a run that has it switched on, and the limits that it goes with."""

    length: RewardTrainingSetting
    manager_limit: RewardTrainingSetting | None
    """What the reward manager takes for the limit; None where it takes that of the answers"""
    limit: RewardTrainingSetting
    """Of the answers"""


class OverlongBufferDoesNotFitTheAnswers(ConfigRule):
    code = "CFG212"
    fault = Fault.RIGHT_ANSWERS_GET_NO_REWARD
    severity = "error"
    symptoms = ("reward-does-not-rise",)
    methods = ("grpo", "ppo")
    stacks = ("verl",)

    def unmet(self) -> Unmet | None:
        """Also unmet where no buffer is switched on, or its length is not known."""
        if (lacking := super().unmet()) is not None:
            return lacking
        if _overlong_buffer(self.subject) is None:
            return Unmet("no overlong buffer of a known length is switched on")
        return None

    def measurement_if_clean(self) -> str:
        """The buffer and the limit."""
        buffer = _overlong_buffer(self.subject)
        assert buffer is not None, "else the rule is not judged"
        return f"the last {buffer.length.number:,.0f} of {buffer.limit.number or 0:,.0f} tokens are punished"

    def findings(self) -> Iterator[Finding]:
        """The finding on a buffer that fits no answer, or on limits that differ."""
        buffer = _overlong_buffer(self.subject) if self.unmet() is None else None
        if buffer is None:
            return
        if buffer.manager_limit is not None and not buffer.manager_limit.is_written:
            yield self._finding(
                buffer,
                f"{buffer.manager_limit.key} is not set: verl stops at its start, for the overlong buffer is counted"
                " from it",
                f"set it to {buffer.limit.key}",
            )
            return
        length, answer_limit = buffer.length.number or 0, buffer.limit.number
        limit = answer_limit if buffer.manager_limit is None else buffer.manager_limit.number
        if limit is None:
            return
        if length >= limit:
            yield self._finding_on_buffer_as_long_as_answers(buffer, length, limit)
        elif answer_limit is not None and limit != answer_limit:
            yield self._finding_on_other_limit(buffer, length, limit, answer_limit)

    def _finding_on_buffer_as_long_as_answers(
        self, buffer: _OverlongBuffer, length: float, limit: float
    ) -> Finding:
        """The finding on a buffer of all tokens that an answer may have, or of more."""
        outcome = (
            "verl stops at its start"
            if length > limit and buffer.manager_limit is not None
            else "every answer is punished from its first token"
        )
        return self._finding(
            buffer,
            f"the overlong buffer has {length:,.0f} of the {limit:,.0f} tokens of an answer: {outcome}",
            f"set {buffer.length.key} to {max(1, limit // 5):.0f} (a fifth of the limit, as in DAPO)",
        )

    def _finding_on_other_limit(
        self, buffer: _OverlongBuffer, length: float, limit: float, answer_limit: float
    ) -> Finding:
        """The finding on a limit of the reward manager that is not that of the answers."""
        assert buffer.manager_limit is not None, "else there is one limit alone"
        if limit < answer_limit:
            outcome = f"answers of {limit:,.0f} to {answer_limit:,.0f} tokens are punished by more than the factor"
        elif limit - length >= answer_limit:
            outcome = "no answer is long enough to be punished"
        else:
            outcome = "cut answers get a part of the penalty alone"
        return self._finding(
            buffer,
            f"{buffer.manager_limit.key} is {limit:,.0f}, and answers have at most {answer_limit:,.0f} tokens:"
            f" {outcome}",
            f"set it to {answer_limit:.0f}, as {buffer.limit.key} is",
            is_warning=True,
        )

    def _finding(
        self, buffer: _OverlongBuffer, message: str, remedy: str, *, is_warning: bool = False
    ) -> Finding:
        """A finding with the settings that it is about."""
        written = (buffer.length, buffer.manager_limit, buffer.limit)
        return self.finding(
            message,
            remedy,
            severity="warning" if is_warning else "error",
            cases=[
                case_of_setting(self.subject, one)
                for one in written
                if one is not None and one.is_written
            ],
        )


def _overlong_buffer(config: Config) -> _OverlongBuffer | None:
    """The overlong buffer that a run has switched on; None where it has none, or its length is not known."""
    for table, limit_key in BUFFERS:
        enabled = setting_or_default(config, f"{table}.enable")
        length = setting_or_default(config, f"{table}.len")
        if str(enabled.value).lower() == "true" and length.number is not None:
            manager_limit = setting_or_default(config, limit_key) if limit_key else None
            if (
                manager_limit is not None
                and manager_limit.is_written
                and manager_limit.number is None
            ):
                return None
            limit = reward_training_setting(config, "answer limit")
            return _OverlongBuffer(length, manager_limit, limit)
    return None
