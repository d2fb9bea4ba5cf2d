"""Axolotl's chat template writes turn tokens that the base model does not have.

## What it does
Compares the turn tokens of a named template (`chatml`, `llama3`, `gemma`), or of a preference strategy that writes its
own (`type: chatml.intel`), with the vocabulary of the base: that of its tokenizer if it is on this machine, or else of
the published model with that name. It fires if the token that ends a turn is not in the vocabulary, and neither
`tokens` nor `special_tokens` adds it.

## Why it is bad
`<|im_end|>` is split into pieces (`<`, `|`, `im`, ...), which are ordinary text. The tuned model prints them and
continues, because no single token ends its turn that could be an EOS.

## Example
```yaml
config:
  base_model: meta-llama/Llama-3.1-8B
  datasets: [{path: some/rows, type: chat_template}]
  chat_template: chatml
  sequence_len: 2048
  micro_batch_size: 2
```

## Use instead
```yaml
config:
  base_model: meta-llama/Llama-3.1-8B
  datasets: [{path: some/rows, type: chat_template}]
  chat_template: chatml
  special_tokens: {eos_token: "<|im_end|>"}
  tokens: ["<|im_start|>"]
  sequence_len: 2048
  micro_batch_size: 2
```

## Fix safety
The embeddings of the new tokens have to be trained: with LoRA, set `lora_modules_to_save: [embed_tokens, lm_head]`. The
template of the base's own instruct model needs no new tokens.

## References
- axolotl-ai-cloud/axolotl documentation, "Special tokens" and `chat_template`
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    numbered_tables_of_list,
    setting_case,
)
from truetune.checks.config.evidence.template_marks_before_questions import (
    CHATML,
    GEMMA,
    LLAMA3,
    MARKERS,
    first_mark_without_role,
    mark_before_question_of_model,
    own_template_of_strategy,
    tokenizer_has_token,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.settings.config import Config

ENDS = {CHATML: "<|im_end|>", LLAMA3: "<|eot_id|>", GEMMA: "<end_of_turn>"}
"""Marker of a question -> the token that ends a turn"""
# The names of fine-tunes continue with words of their own; many of them have ChatML's tokens.
PUBLISHED = re.compile(
    r"(?:meta-)?(?:llama|mistral|mixtral|ministral|gemma|qwen)"
    r"(?:-?(?:v?\d[0-9a-z]*|base|instruct|it|pt|hf|chat|nemo|small|bnb|4bit|bf16))*"
)
ADDING_KEYS = ("tokens", "special_tokens", "added_tokens_overrides")


class TemplateMarksNotInVocabulary(ConfigRule):
    code = "CFG106"
    fault = Fault.CHAT_TEMPLATE_OF_ANOTHER_MODEL
    symptoms = ("garbage-output", "never-stops")
    severity = "warning"
    stacks = ("axolotl",)
    about = ("chat_template", "rl")
    reads = ("tokens", "special_tokens")

    def unmet(self) -> Unmet | None:
        """Why the rule can't judge this run; None if it can.

        Also unmet for other templates, or where the tokens of the base are not known.
        """
        if (lacking := super().unmet()) is not None:
            return lacking
        end = _turn_end_of_template(self.subject)
        if end is None:
            return Unmet("it is about the templates chatml, llama3 and gemma")
        if _is_turn_end_a_token(self.subject, end) is None:
            return Unmet("what tokens the base has is not known", "name a tokenizer with -t")
        return None

    def measurement_if_clean(self) -> str:
        """What was measured: that the token which ends a turn is one of the base, or added."""
        return f"{_turn_end_of_template(self.subject)} is a token of the base, or added to it"

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        end = _turn_end_of_template(config) if config.stack == "axolotl" else None
        if end is None or _is_turn_end_a_token(config, end) is not False:
            return
        name = str(_template_name(config))
        yield self.finding(
            f"the template {name} ends turns with {end}, which is not a token of {config.spec.model}: it is split"
            " into pieces, and the tuned model prints it and continues",
            f'set special_tokens: {{eos_token: "{end}"}} and add the token that opens turns to tokens; with'
            " LoRA, lora_modules_to_save: [embed_tokens, lm_head] as well; or use the template of the base's own"
            " instruct model",
            cases=[
                setting_case(
                    config,
                    name,
                    "datasets" if own_template_of_strategy(config) else "chat_template",
                ),
                setting_case(config, config.spec.model or "", "model"),
            ],
        )


def _template_name(config: Config) -> str | None:
    """The name of the template that renders the rows."""
    strategy = own_template_of_strategy(config)
    if strategy is not None:
        return strategy.name
    named = [config.raw.get("chat_template")]
    named += [item.get("chat_template") for _, item in numbered_tables_of_list(config, "datasets")]
    return next((name for name in named if isinstance(name, str)), None)


def _turn_end_of_template(config: Config) -> str | None:
    """The token that ends a turn of the run's template; None where it is none of these."""
    strategy = own_template_of_strategy(config)
    if strategy is not None:
        marks = {first_mark_without_role(marker): end for marker, end in ENDS.items()}
        return marks.get(first_mark_without_role(strategy.marker))
    return ENDS.get(MARKERS.get(_template_name(config) or "", ""))


def _is_turn_end_a_token(config: Config, end: str) -> bool | None:
    """Is the end of turns a token of the run's tokenizer, as it is or added? None where it is not known."""
    added = [str(config.raw.get(key)) for key in ADDING_KEYS] + list(
        config.spec.training.added_tokens
    )
    if any(end in one for one in added):
        return True
    known = tokenizer_has_token(config, end)
    if known is not None:
        return known
    name = config.spec.model or ""
    if config.spec.tokenizer not in (None, name) or name.startswith((".", "/")):
        return None
    plain = re.sub(r"[^a-z0-9]+", "-", name.rstrip("/").rpartition("/")[2].lower())
    own = mark_before_question_of_model(name)
    if PUBLISHED.fullmatch(plain) is None:
        return None
    return own in {first_mark_without_role(marker) for marker, mark in ENDS.items() if mark == end}
