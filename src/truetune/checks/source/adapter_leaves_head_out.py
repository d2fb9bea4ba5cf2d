"""An adapter on a classifier is declared as one on a causal model: its head is not saved.

## What it does
Looks for `LoraConfig(task_type="CAUSAL_LM")` without `modules_to_save`, put on a model with a head of its own
(`*ForSequenceClassification`, `*ForTokenClassification`).

## Why it is bad
peft trains and saves the head of a classifier for the task types SEQ_CLS and TOKEN_CLS alone. Here the head keeps the
random values that it began with, the adapter learns to fit them, and after a reload the head has other random values:
so have the scores.

## Example
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("model", num_labels=2)
model = get_peft_model(model, LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM"))
```

## Use instead
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("model", num_labels=2)
model = get_peft_model(model, LoraConfig(target_modules=["q_proj"], task_type="SEQ_CLS"))
```

## Fix safety
Safe: the adapter's own layers are the same.

## References
- huggingface/peft#577, huggingface/peft#876, huggingface/trl#1379, huggingface/transformers#26160
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import calls_of
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

CLASSIFIERS = ("transformers.*ForSequenceClassification*", "transformers.*ForTokenClassification*")
CAUSAL_TASKS = ("CAUSAL_LM", "peft.TaskType.CAUSAL_LM")


class AdapterLeavesHeadOut(SourceRule):
    code = "SRC066"
    symptoms = ("garbage-output",)
    severity = "error"
    since = "0.1.0"
    looks_at = calls_of("calls of get_peft_model", "peft.get_peft_model")

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for call in module.calls("peft.get_peft_model"):
            loaded = _origin_nodes(module, call.argument(0, "model"))
            configs = _origin_nodes(module, call.argument(1, "peft_config"))
            heads = [head for head in module.calls(*CLASSIFIERS) if head.node in loaded]
            for config in module.calls("peft.LoraConfig"):
                if config.node not in configs or not heads or not config.lacks("modules_to_save"):
                    continue
                if _is_for_causal_model(module, config):
                    yield self.finding(
                        "an adapter for CAUSAL_LM on a classifier: peft freezes the head, and does not save it",
                        'set task_type="SEQ_CLS" (TOKEN_CLS for token classification)',
                        cases=[case_at(module, config.node), case_at(module, heads[0].node)],
                    )


def _origin_nodes(module: Module, value: ast.expr | None) -> set[ast.AST]:
    """What a value comes from; empty where it is not given."""
    if value is None:
        return set()
    return {origin.node for origin in module.flow.origins(value)}


def _is_for_causal_model(module: Module, config: Call) -> bool:
    """Does a config of LoRA name the task of a causal language model?"""
    task = config.keywords.get("task_type")
    return task is not None and (module.flow.name(task) or module.flow.value(task)) in CAUSAL_TASKS
