"""Prompts are learned as well as answers.

## What it does
Says so where Axolotl's `train_on_inputs` or LLaMA-Factory's `train_on_prompt` is on, for rows that have prompts.

## Why it is bad
It is a choice, and a copied config makes it for you: the model spends its steps on writing questions, system prompts
and tool results, and a row's loss is that of its prompt where this is the longer part.

## Example
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: chat_template}]
  sequence_len: 2048
  micro_batch_size: 2
  train_on_inputs: true
```

## Use instead
```yaml
config:
  base_model: some/model
  datasets: [{path: some/rows, type: chat_template}]
  sequence_len: 2048
  micro_batch_size: 2
  train_on_inputs: false
```

## Fix safety
It changes what is learned.

## References
- axolotl-ai-cloud/axolotl#1608, Huang et al., "Instruction Tuning With Loss Over Instructions" (arXiv:2405.14394)
"""

from __future__ import annotations

from collections.abc import Iterator

from truetune.checks.config.evidence.setting_places import setting_case, table_entries
from truetune.checks.findings import Finding
from truetune.checks.rule import ConfigRule


class PromptsAreLearned(ConfigRule):
    code = "CFG024"
    severity = "info"
    stability = "stable"
    since = "0.1.0"
    methods = ("sft",)
    reads = ("training.train_on_inputs",)

    def findings(self) -> Iterator[Finding]:
        config, training = self.subject, self.subject.spec.training
        sets = [item for _, item in table_entries(config, "datasets")]
        plain = bool(sets) and all(
            str(item.get("type") or "completion").startswith("completion") for item in sets
        )
        if training.train_on_inputs and training.method == "sft" and not plain:
            yield self.finding(
                "prompts are learned as well as answers",
                "switch it off, unless that is what you want",
                cases=[setting_case(config, True, "training.train_on_inputs")],
            )
