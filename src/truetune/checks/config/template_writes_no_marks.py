"""A chat model is trained with a template that writes none of its turn tokens.

## What it does
Looks for `template: empty` or `template: default` in LLaMA-Factory if the model is a chat model by its name. `empty`
joins the bare contents; `default` writes `Human:` and `Assistant:`. Neither uses the tokenizer's chat template;
removing `template` does. It also checks torchtune's tokenizers for Gemma, Llama 2 and Mistral without a
`prompt_template`, which join the bare contents. Gemma's has none by default; the others lose theirs with
`prompt_template: null`. For NeMo RL it looks for `chat_template: null`, which joins the bare contents too.

## Why it is bad
The model is trained on texts without its turn tokens, but served with them by its own chat template: the training
hardly shows, and the token that ends its turns in training is not the one that servers stop at. `default` also replaces
the chat template of the saved tokenizer, so it differs from the base's.

## Example
```yaml
config:
  stage: sft
  do_train: true
  model_name_or_path: Qwen/Qwen2.5-7B-Instruct
  dataset: own
  template: empty
  finetuning_type: lora
  output_dir: out
```

## Use instead
```yaml
config:
  stage: sft
  do_train: true
  model_name_or_path: Qwen/Qwen2.5-7B-Instruct
  dataset: own
  template: qwen
  finetuning_type: lora
  output_dir: out
```

## Fix safety
The training text changes. Use the same template for serving, export and evaluation.

## References
- OpenBMB/MiniCPM#368; LLaMA-Factory, src/llamafactory/data/template.py
- torchtune, torchtune/models/gemma/_model_builders.py (`gemma_tokenizer`)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from truetune.checks.config.evidence.setting_places_and_known_keys import (
    setting_case,
    value_at_dotted_key,
)
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.judgement import Unmet
from truetune.checks.rule import ConfigRule
from truetune.checks.source.evidence.chat_model_and_turn_mark_patterns import CHAT_MODEL_NAME

WRITTEN_BY_TEMPLATE = {
    "empty": "joins the bare contents",
    "default": "writes Human: and Assistant:",
}
TEMPLATES_OF_TOKENIZERS: Mapping[str, str | None] = {
    "gemma_tokenizer": None,
    "llama2_tokenizer": "torchtune.models.llama2.Llama2ChatTemplate",
    "mistral_tokenizer": "torchtune.models.mistral.MistralChatTemplate",
}
"""Tokenizers of torchtune that write no mark by themselves -> their prompt template by default"""
STAGES_OF_CHATS = ("sft", "dpo", "kto", "rm", "ppo")


class TemplateWritesNoMarks(ConfigRule):
    code = "CFG164"
    fault = Fault.CHAT_MODEL_TRAINED_WITHOUT_TEMPLATE
    symptoms = ("good-here-bad-there", "never-stops", "nothing-is-learned")
    severity = "warning"
    stacks = ("llama-factory", "torchtune", "nemo-rl")

    def unmet(self) -> Unmet | None:
        """Also unmet where no chat model is trained on chats."""
        if (lacking := super().unmet()) is not None:
            return lacking
        return (
            None
            if self._is_chat_model_trained_on_chats()
            else Unmet("it is about chat models trained on chats")
        )

    def _is_chat_model_trained_on_chats(self) -> bool:
        """Is a chat model, by its name, trained on chats?"""
        config = self.subject
        name = Path(config.spec.model or "").name
        stage = config.raw.get("stage", "sft")
        return stage in STAGES_OF_CHATS and CHAT_MODEL_NAME.search(name) is not None

    def measurement_if_clean(self) -> str:
        """Which template the settings name."""
        if self.subject.stack == "torchtune":
            return "the tokenizer of the recipe writes marks of turns"
        return f"the template is {self.subject.raw.get('template', 'that of the tokenizer')}"

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        if config.stack == "torchtune":
            yield from self._findings_on_torchtune()
            return
        if config.stack == "nemo-rl":
            yield from self._findings_on_nemo_rl()
            return
        template = config.raw.get("template")
        if template not in WRITTEN_BY_TEMPLATE or not self._is_chat_model_trained_on_chats():
            return
        yield self.finding(
            f"LLaMA-Factory's template {template} {WRITTEN_BY_TEMPLATE[template]}: {config.spec.model} is trained"
            " without the turn tokens with which it is served",
            "set template to that of the model's family, or remove it to use the tokenizer's own",
            cases=[setting_case(config, template, "template")],
        )

    def _findings_on_nemo_rl(self) -> Iterator[Finding]:
        """The finding on NeMo RL's `chat_template: null`, which passes the contents through."""
        config = self.subject
        table = value_at_dotted_key(config.raw, "policy.tokenizer")
        is_passed_through = isinstance(table, Mapping) and table.get("chat_template", "") is None
        if not is_passed_through or not self._is_chat_model_trained_on_chats():
            return
        yield self.finding(
            f"chat_template is null, with which NeMo RL joins the bare contents: {config.spec.model} is trained without"
            " the turn tokens with which it is served",
            "set policy.tokenizer.chat_template: default, which takes that of the tokenizer",
            cases=[setting_case(config, "null", "policy.tokenizer.chat_template")],
        )

    def _findings_on_torchtune(self) -> Iterator[Finding]:
        """The finding on a tokenizer of torchtune that joins the bare contents."""
        config = self.subject
        table = config.raw.get("tokenizer")
        tokenizer = table if isinstance(table, Mapping) else {}
        builder = str(tokenizer.get("_component_", "")).rpartition(".")[2]
        template = tokenizer.get("prompt_template", TEMPLATES_OF_TOKENIZERS.get(builder))
        if (
            builder not in TEMPLATES_OF_TOKENIZERS
            or template
            or not self._is_chat_model_trained_on_chats()
        ):
            return
        yield self.finding(
            f"torchtune's {builder} has no prompt_template and joins the bare contents: {config.spec.model} is"
            " trained without the turn tokens with which it is served",
            (
                "set tokenizer.prompt_template: the texts before and after a user and an assistant turn, as in the"
                " model's chat template"
            ),
            cases=[setting_case(config, builder, "tokenizer._component_", "tokenizer")],
        )
