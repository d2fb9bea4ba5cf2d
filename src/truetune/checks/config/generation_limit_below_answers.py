"""The limit on generated tokens is below the length of the answers.

## What it does
Compares the generation limit (LLaMA-Factory's `max_new_tokens` for predictions, TRL's `max_completion_length` for GRPO
and RLOO, 512 by default) with the reference answers in the local rows: the last answer of a chat, or a column such as
`output` or `solution`. An answer with more than six characters per token of the limit is too long with any tokenizer.
The rule fires if at least half of the answers are.

For trainings by rewards (TRL, ms-swift, verl, OpenRLHF, NeMo RL, prime-rl) it also fires for a limit below 1,024 tokens
if the model is known to reason before it answers, such as R1 distilled, QwQ or Qwen3 (unless `enable_thinking` is
false), and for a limit of 256 or less if `<think>` or `think_format_reward` asks for reasoning.

## Why it is bad
The generated answers are cut off. ROUGE and BLEU then measure the limit instead of the model. A reward that looks for a
final answer finds none: the whole group gets 0, and the model learns nothing from it. If answers that are cut are left
out of the loss, nothing is left in it. TRL's former default of 256 tokens cut 50 to 97 % of the answers to questions of
mathematics, of models that do not even think.

## Example
```yaml
files:
  data/dataset_info.json: {held: {file_name: held.json}}
  data/held.json:
    - instruction: "Why is the sky blue?"
      output: Air scatters the short waves of light more than the long ones, so blue reaches the eye from all sides.
config:
  model_name_or_path: some/model
  stage: sft
  do_predict: true
  predict_with_generate: true
  finetuning_type: lora
  eval_dataset: held
  dataset_dir: data
  template: qwen
  output_dir: out
  max_new_tokens: 16
```

## Use instead
```yaml
files:
  data/dataset_info.json: {held: {file_name: held.json}}
  data/held.json:
    - instruction: "Why is the sky blue?"
      output: Air scatters the short waves of light more than the long ones, so blue reaches the eye from all sides.
config:
  model_name_or_path: some/model
  stage: sft
  do_predict: true
  predict_with_generate: true
  finetuning_type: lora
  eval_dataset: held
  dataset_dir: data
  template: qwen
  output_dir: out
  max_new_tokens: 512
```

## Fix safety
Only what is measured or sampled changes. Longer answers take more time and memory.

## References
- huggingface/trl#2703, huggingface/trl#5697, huggingface/trl#6263 (completions cut at the default length)
- verl-project/verl#2738 (R1 distilled with 512 tokens), huggingface/trl#3248 (cut completions left out of the loss)
- LLaMA-Factory, src/llamafactory/hparams/generating_args.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from truetune.checks.config.evidence.columns_and_age_of_training_files import local_data_files
from truetune.checks.config.evidence.read_first_rows_and_count_characters import (
    CHATS,
    first_rows_of_file,
)
from truetune.checks.config.evidence.reasons_setting_rules_lack_their_inputs import NO_ROWS
from truetune.checks.config.evidence.setting_places_and_known_keys import (
    is_config_of_python_program,
    setting_case,
)
from truetune.checks.config.evidence.settings_of_reward_training import (
    KEYS,
    reward_training_setting,
    setting_or_default,
)
from truetune.checks.config.evidence.signs_of_long_reasoning import (
    format_that_asks_for_reasoning,
    model_that_reasons,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.data.row_text_bytes import MOST_CHARACTERS_PER_TOKEN
from truetune.settings.config import Config
from truetune.settings.stacks.config_draft import is_switched_on

MIN_SHARE_CUT = 0.5
"""References that are surely longer than the limit. Chosen: a few long ones may be meant to be cut, half of them not"""
DEFAULTS = {"max_new_tokens": 1024, "max_completion_length": 512}
"""Of LLaMA-Factory 0.9.5 and TRL 1.16"""
ANSWERS = ("output", "response", "completion", "answer", "solution", "reference", "ground_truth")
"""Columns that hold a reference"""
ANSWERING = ("assistant", "gpt")
WITH_REFERENCES = ("llama-factory", "trl")
"""Stacks whose rows are read"""
# The shortest published training of a distilled reasoner (Open-RS) allows 3,584 tokens, verl's examples of Qwen3 1,024.
MIN_LIMIT_OF_REASONERS = 1024
# 50 to 80 % of answers to GSM8K were cut there without any thinking (huggingface/trl#6263).
MAX_LIMIT_TOO_SHORT_FOR_ANY = 256
ROOM_FOR_REASONING = "4096 to 16384"
LEFT_OUT_IF_CUT = ("mask_truncated_completions", "overlong_filter", "grpo.overlong_filtering")
"""Of TRL, ms-swift and NeMo RL: answers that are cut are not in the loss"""
NO_GENERATION = Unmet("it is about settings of a prediction, or of GRPO and RLOO")


class _Limit(NamedTuple):
    """A limit on what is generated."""

    key: str
    tokens: int
    is_known: bool = True
    """False for a default of a program that may set another one"""


class GenerationLimitBelowAnswers(ConfigRule):
    code = "CFG166"
    fault = Fault.ANSWERS_CUT_AT_TOKEN_LIMIT
    symptoms = ("reward-does-not-rise", "odd-metrics", "nothing-is-learned")
    severity = "warning"
    stacks = ("llama-factory", *KEYS)

    def unmet(self) -> Unmet | None:
        """Also unmet where nothing is generated, and where no reference is here."""
        if (lacking := super().unmet()) is not None:
            return lacking
        if _generation_limit(self.subject) is None:
            return NO_GENERATION
        if _sign_of_long_answers(self.subject) is not None:
            return None
        return None if _reference_lengths(self.subject) else NO_ROWS

    def measurement_if_clean(self) -> str:
        """The limit, and the median length of what it is compared with."""
        limit, lengths = _generation_limit(self.subject), _reference_lengths(self.subject)
        assert limit is not None, "else the rule is not judged"
        if not lengths:
            return f"{limit.key} {limit.tokens:,}"
        median = sorted(lengths)[len(lengths) // 2]
        return f"{limit.key} {limit.tokens:,}; references of {median:,} characters at the median"

    def findings(self) -> Iterator[Finding]:
        config, limit = self.subject, _generation_limit(self.subject)
        if limit is None:
            return
        lengths = _reference_lengths(config)
        most = limit.tokens * MOST_CHARACTERS_PER_TOKEN
        count = sum(length > most for length in lengths)
        if not lengths or count < MIN_SHARE_CUT * len(lengths):
            yield from self._findings_on_reasoning_that_is_cut(limit)
            return
        yield self.finding(
            f"{limit.key} is {limit.tokens:,}, but {count:,} of {len(lengths):,} reference answers are longer than"
            f" that (more than {most:,} characters): generated answers are cut off",
            (
                f"set {limit.key} above the token count of the longest reference answer ({max(lengths):,}"
                f" characters, about {max(lengths) // 4:,} tokens of English)"
            ),
            cases=[setting_case(config, limit.tokens, limit.key)],
        )

    def _findings_on_reasoning_that_is_cut(self, limit: _Limit) -> Iterator[Finding]:
        """The finding on a limit that ends an answer within its reasoning."""
        config, sign = self.subject, _sign_of_long_answers(self.subject)
        if sign is None or not limit.is_known or limit.tokens > sign.most_tokens_too_few:
            return
        masks = [setting_or_default(config, key) for key in LEFT_OUT_IF_CUT]
        is_left_out = any(is_switched_on(one.value) for one in masks)
        end = (
            "they are cut before it, and left out of the loss"
            if is_left_out
            else "they are cut before it"
        )
        yield self.finding(
            f"{limit.key} is {limit.tokens:,}, but {sign.text}: most answers need more tokens to reach their end, and"
            f" {end}",
            f"set {limit.key} to {ROOM_FOR_REASONING}",
            cases=[setting_case(config, limit.tokens, limit.key)],
        )


class _LongAnswers(NamedTuple):
    """Why answers are long, and the limits that are too low for them."""

    text: str
    most_tokens_too_few: int


def _sign_of_long_answers(config: Config) -> _LongAnswers | None:
    """Why the answers of a training by rewards are long; None where nothing says so."""
    if config.spec.training.method not in ("grpo", "ppo"):
        return None
    model = model_that_reasons(config)
    if model is not None:
        return _LongAnswers(f"{model} reasons before it answers", MIN_LIMIT_OF_REASONERS - 1)
    asked = format_that_asks_for_reasoning(config)
    if asked is not None:
        return _LongAnswers(f"{asked} asks for reasoning", MAX_LIMIT_TOO_SHORT_FOR_ANY)
    return None


def _generation_limit(config: Config) -> _Limit | None:
    """The limit on what a prediction or a sampling writes; None where nothing is generated, or it is not known."""
    if config.stack not in WITH_REFERENCES:
        if config.spec.training.method not in ("grpo", "ppo"):
            return None
        setting = reward_training_setting(config, "answer limit")
        return _Limit(setting.key, int(setting.number)) if setting.number else None
    key = "max_completion_length"
    if config.stack == "llama-factory":
        key = "max_new_tokens"
        predicts = is_switched_on(config.raw.get("do_predict"))
        if not predicts or not is_switched_on(config.raw.get("predict_with_generate")):
            return None
    elif config.spec.training.method != "grpo":
        return None
    tokens = config.raw.get(key, DEFAULTS[key])
    is_number = isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0
    is_known = key in config.raw or not is_config_of_python_program(config)
    return _Limit(key, tokens, is_known) if is_number else None


def _reference_lengths(config: Config) -> list[int]:
    """The characters of the reference answers in the first rows of the files that are here."""
    if config.stack not in WITH_REFERENCES:
        return []
    files = config.spec.eval_data if config.stack == "llama-factory" else config.spec.data
    rows = (
        row
        for name in files
        for source in local_data_files(name)
        for _, row in first_rows_of_file(source)
    )
    return [len(answer) for answer in map(_reference_of_row, rows) if answer]


def _reference_of_row(row: Mapping[str, Any]) -> str:
    """The reference answer of a row; empty where it has none."""
    for name in CHATS:
        turns = row.get(name)
        last = turns[-1] if isinstance(turns, list) and turns else None
        if isinstance(last, Mapping):
            return _text_of_answer(last)
    texts = (row.get(name) for name in ANSWERS)
    return next((text for text in texts if isinstance(text, str) and text), "")


def _text_of_answer(turn: Mapping[str, Any]) -> str:
    """The text of a turn; empty where it is not the assistant's."""
    text = turn.get("content") or turn.get("value")
    role = turn.get("role") or turn.get("from")
    return text if isinstance(text, str) and role in ANSWERING else ""
