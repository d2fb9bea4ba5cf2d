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
    told: RewardTrainingSetting | None
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
        length, limit = buffer.length.number or 0, buffer.limit.number
        told = limit if buffer.told is None else buffer.told.number
        if buffer.told is not None and not buffer.told.is_written:
            yield self._finding(
                buffer,
                f"{buffer.told.key} is not set: verl stops at its start, for the overlong buffer is counted from it",
                f"set it to {buffer.limit.key}",
            )
        elif told is not None and length >= told:
            outcome = (
                "verl stops at its start"
                if length > told and buffer.told is not None
                else "every answer is punished from its first token"
            )
            yield self._finding(
                buffer,
                f"the overlong buffer has {length:,.0f} of the {told:,.0f} tokens of an answer: {outcome}",
                f"set {buffer.length.key} to {max(1, told // 5):.0f} (a fifth of the limit, as in DAPO)",
            )
        elif told is not None and limit is not None and told != limit:
            yield self._finding_on_other_limit(buffer, length, told, limit)

    def _finding_on_other_limit(
        self, buffer: _OverlongBuffer, length: float, told: float, limit: float
    ) -> Finding:
        """The finding on a limit of the reward manager that is not that of the answers."""
        assert buffer.told is not None, "else there is one limit alone"
        if told < limit:
            outcome = f"answers of {told:,.0f} to {limit:,.0f} tokens are punished by more than the factor"
        elif told - length >= limit:
            outcome = "no answer is long enough to be punished"
        else:
            outcome = "cut answers get a part of the penalty alone"
        return self._finding(
            buffer,
            f"{buffer.told.key} is {told:,.0f}, and answers have at most {limit:,.0f} tokens: {outcome}",
            f"set it to {limit:.0f}, as {buffer.limit.key} is",
            is_warning=True,
        )

    def _finding(
        self, buffer: _OverlongBuffer, message: str, remedy: str, *, is_warning: bool = False
    ) -> Finding:
        """A finding with the settings that it is about."""
        written = (buffer.length, buffer.told, buffer.limit)
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
            told = setting_or_default(config, limit_key) if limit_key else None
            if told is not None and told.is_written and told.number is None:
                return None
            limit = reward_training_setting(config, "answer limit")
            return _OverlongBuffer(length, told, limit)
    return None
