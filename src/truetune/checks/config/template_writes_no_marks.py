"""LLaMA-Factory trains a chat model with a template that writes none of its marks.

## What it does
Looks for `template: empty` or `template: default` of LLaMA-Factory where the model, by its name, is a chat model.
`empty` joins the bare contents; `default` writes `Human:` and `Assistant:`. Neither falls back to the chat template of
the tokenizer, which leaving `template` out does.

## Why it is bad
The model is trained on texts without the marks of its turns, and is served with them: what it learned hardly shows, and
the token that ends its turns is not the one that servers stop at.

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
"""

from __future__ import annotations

from collections.abc import Iterator
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
STAGES_OF_CHATS = ("sft", "dpo", "kto", "rm", "ppo")


class TemplateWritesNoMarks(ConfigRule):
    code = "CFG164"
    symptoms = ("good-here-bad-there", "never-stops", "nothing-is-learned")
    severity = "warning"
    stacks = ("llama-factory",)

    def unmet(self) -> Unmet | None:
        """Also unmet where no chat model is trained on chats."""
        if (lacking := super().unmet()) is not None:
            return lacking
        return None if self._is_about_chats() else Unmet("it is about chat models trained on chats")

    def _is_about_chats(self) -> bool:
        """Is a chat model, by its name, trained on chats?"""
        config = self.subject
        name = Path(config.spec.model or "").name
        stage = config.raw.get("stage", "sft")
        return stage in STAGES_OF_CHATS and CHAT_MODEL_NAME.search(name) is not None

    def figure(self) -> str:
        """Which template the settings name."""
        return f"the template is {self.subject.raw.get('template', 'that of the tokenizer')}"

    def findings(self) -> Iterator[Finding]:
        config = self.subject
        template = config.raw.get("template")
        if template not in WRITTEN_BY_TEMPLATE or not self._is_about_chats():
            return
        yield self.finding(
            f"the template {template} of LLaMA-Factory {WRITTEN_BY_TEMPLATE[template]}: {config.spec.model}"
            " is trained without the marks of its turns, and served with them",
            "name the template of the model's family, or leave template out to take the tokenizer's own",
            cases=[setting_case(config, template, "template")],
        )
