"""The prompt and the longest answer together exceed the length of the engine that samples.

## What it does
For trainings by rewards, compares the limit on answers plus the limit on prompts with the context length of the engine:
`vllm_max_model_length` (TRL), `vllm_max_model_len` (ms-swift), `rollout.max_model_len` (verl), `max_len` (OpenRLHF),
`vllm_cfg.max_model_len` (NeMo RL). It is an error if the answers alone are longer. Where no limit on prompts is set and
both lengths are equal, it is info: the prompt shortens the longest answers. For NeMo RL equal lengths are right, since
its own recipes set both to the longest row, and it limits each answer to what the prompt leaves.

prime-rl has a second limit: `seq_len`, to which the orchestrator cuts a prompt with its answer before it trains on
them. It is an error if the limit on answers is larger.

## Why it is bad
The engine cuts answers where its context ends, before the limit that the trainer knows. verl counts an answer as cut
only if it has the trainer's limit, so `response_length/clip_ratio` is 0 although every long answer is cut. The reward
is that of an unfinished answer. Where `seq_len` of prime-rl cuts, the reward is of the whole answer, and its end is
not trained. Prompts that are longer than the context make vLLM fail, or return nothing.

## Example
```yaml
config:
  actor_rollout_ref:
    model: {path: some/model}
    actor: {optim: {lr: 0.000001}}
    rollout: {name: vllm, n: 8, max_model_len: 4096}
  data: {max_prompt_length: 1024, max_response_length: 8192}
  algorithm: {adv_estimator: grpo}
  trainer: {total_epochs: 2, save_freq: 20}
```

## Use instead
```yaml
config:
  actor_rollout_ref:
    model: {path: some/model}
    actor: {optim: {lr: 0.000001}}
    rollout: {name: vllm, n: 8, max_model_len: 9216}
  data: {max_prompt_length: 1024, max_response_length: 8192}
  algorithm: {adv_estimator: grpo}
  trainer: {total_epochs: 2, save_freq: 20}
```

## Fix safety
A longer context takes more memory for the KV cache. If it does not fit, lower the limit on answers, and check in the
log how many are cut.

## References
- verl-project/verl#7823 (`clip_ratio` is 0 where `max_model_len` cuts), huggingface/trl#3180, huggingface/trl#3113,
  TIGER-AI-Lab/verl-tool#85
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.settings_of_reward_training import (
    KEYS,
    RewardTrainingSetting,
    SettingName,
    case_of_setting,
    reward_training_setting,
    setting_or_default,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.run_spec import Severity

STACKS_SUBTRACTING_THE_PROMPT = ("nemo-rl",)
"""Their own recipes set both limits to `max_total_sequence_length`"""
TRAINED_LENGTHS: dict[str, tuple[str, ...]] = {"prime-rl": ("orchestrator.seq_len", "seq_len")}
"""Stack -> where it may set how many tokens of a prompt with its answer are trained; the rest is cut in silence"""
LIMITS: tuple[SettingName, ...] = ("engine limit", "answer limit", "prompt limit")
"""What is compared; without a limit on prompts, the first two"""


class AnswersDoNotFitIntoTheEngine(ConfigRule):
    code = "CFG201"
    fault = Fault.ANSWERS_CUT_AT_TOKEN_LIMIT
    severity = "warning"
    methods = ("grpo", "ppo")
    stacks = tuple(KEYS)

    def unmet(self) -> Unmet | None:
        """Also unmet where the limit on answers is not set, or neither the engine's length nor the trained one."""
        if (lacking := super().unmet()) is not None:
            return lacking
        has_engine, has_answer = (
            bool(reward_training_setting(self.subject, name).number) for name in LIMITS[:2]
        )
        if has_answer and (has_engine or self._trained_length() is not None):
            return None
        return Unmet("it is about trainings that set the context length of the engine that samples")

    def measurement_if_clean(self) -> str:
        """The engine's length, and the limits that have to fit into it."""
        settings = [reward_training_setting(self.subject, name) for name in LIMITS]
        if (trained := self._trained_length()) is not None:
            settings.append(trained)
        return ", ".join(
            f"{one.key}: {one.value_as_text}" for one in settings if one.value is not None
        )

    def findings(self) -> Iterator[Finding]:
        """The findings on answers that the engine cuts, and on those that the training cuts."""
        if self.unmet() is not None:
            return
        if reward_training_setting(self.subject, "engine limit").number:
            yield from self._findings_on_the_engine()
        yield from self._findings_on_the_trained_length()

    def _findings_on_the_trained_length(self) -> Iterator[Finding]:
        """The finding on answers that are longer than what is trained of them."""
        answer = reward_training_setting(self.subject, "answer limit")
        trained = self._trained_length()
        if trained is None or trained.number is None or answer.number is None:
            return
        if answer.number <= trained.number:
            return
        yield self.finding(
            f"{trained.key} {trained.value_as_text} cuts a prompt with its answer before training, but {answer.key} is"
            f" {answer.value_as_text}: the ends of longer answers are rewarded and never trained",
            f"set {trained.key} to {int(answer.number)} and the longest prompt, or lower {answer.key}",
            severity="error",
            cases=[case_of_setting(self.subject, one) for one in (trained, answer)],
        )

    def _trained_length(self) -> RewardTrainingSetting | None:
        """How many tokens of a prompt with its answer are trained; None where the file does not say it.

        Of two places the larger one: which of them holds depends on the release.
        """
        keys = TRAINED_LENGTHS.get(self.subject.stack, ())
        set_lengths = [setting_or_default(self.subject, key) for key in keys]
        return max(
            (one for one in set_lengths if one.number),
            key=lambda one: one.number or 0,
            default=None,
        )

    def _findings_on_the_engine(self) -> Iterator[Finding]:
        """The finding on answers that the engine cuts."""
        config = self.subject
        engine = reward_training_setting(config, "engine limit")
        answer = reward_training_setting(config, "answer limit")
        prompt = reward_training_setting(config, "prompt limit")
        assert engine.number is not None, "unmet() asked"
        assert answer.number is not None, "unmet() asked"
        severity = self._severity_of_limits(engine.number, answer.number, prompt.number or 0)
        if severity is None:
            return
        needed = int(answer.number + (prompt.number or 0))
        parts = [prompt, answer] if prompt.number else [answer]
        room = "" if prompt.number else " and the longest prompt"
        names = " and ".join(f"{one.key} {one.value_as_text}" for one in parts)
        reason = (
            f"as {names}, and the prompt takes a part of it"
            if needed == engine.number
            else f"but {names} {'needs' if len(parts) == 1 else 'need'} {needed:,} tokens"
        )
        yield self.finding(
            f"the engine that samples ends at {engine.key} {engine.value_as_text}, {reason}: it cuts answers before the"
            " trainer's limit",
            f"set {engine.key} to {needed}{room}, or lower {answer.key}",
            severity=severity,
            cases=[case_of_setting(config, one) for one in (engine, *parts)],
        )

    def _severity_of_limits(self, engine: float, answer: float, prompt: float) -> Severity | None:
        """How grave these limits in tokens are together; None where all answers fit.

        `prompt` is 0 where it is not set.
        """
        if answer > engine:
            return "error"
        if answer + prompt > engine:
            return "warning"
        # The prompt takes a part of a context that the answer alone may fill, except where the stack subtracts it.
        is_full_without_prompt = answer == engine and not prompt
        if is_full_without_prompt and self.subject.stack not in STACKS_SUBTRACTING_THE_PROMPT:
            return "info"
        return None
