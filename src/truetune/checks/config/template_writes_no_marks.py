"""LLaMA-Factory trains a chat model with a template that writes none of its marks.

## What it does
Looks for `template: empty` or `template: default` of LLaMA-Factory where the model, by its name, is a chat model.
`empty` joins the bare contents; `default` writes `Human:` and `Assistant:`. Neither falls back to the chat template of
the tokenizer, which leaving `template` out does. And for torchtune's tokenizers of Gemma, Llama 2 and Mistral without a
`prompt_template`: they join the bare contents. The one of Gemma has none by default; the others have one, and lose it
by `prompt_template: null`.

## Why it is bad
The model is trained on texts without the marks of its turns, and its own chat template serves it with them: what it
learned hardly shows, and the token that ends its turns is not the one that servers stop at. `default` also replaces the
chat template of the tokenizer that is saved, so that the base's tokenizer and the saved one differ.

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
It is another training text. Use the same template for serving, export and evaluation.

## References
- OpenBMB/MiniCPM#368; LLaMA-Factory, src/llamafactory/data/template.py
- torchtune, torchtune/models/gemma/_model_builders.py (`gemma_tokenizer`)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from truetune.checks.config.evidence.setting_places_and_known_keys import setting_case
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
    symptoms = ("good-here-bad-there", "never-stops", "nothing-is-learned")
    severity = "warning"
    stacks = ("llama-factory", "torchtune")

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
        template = config.raw.get("template")
        if template not in WRITTEN_BY_TEMPLATE or not self._is_chat_model_trained_on_chats():
            return
        yield self.finding(
            f"the template {template} of LLaMA-Factory {WRITTEN_BY_TEMPLATE[template]}: {config.spec.model}"
            " is trained without the marks of its turns, with which its own chat template serves it",
            "name the template of the model's family, or leave template out to take the tokenizer's own",
            cases=[setting_case(config, template, "template")],
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
            f"{builder} of torchtune has no prompt_template, and joins the bare contents: {config.spec.model} is"
            " trained without the marks of its turns, with which its own chat template serves it",
            "set prompt_template of the tokenizer: user and assistant with the marks of the model's chat template",
            cases=[setting_case(config, builder, "tokenizer._component_", "tokenizer")],
        )
