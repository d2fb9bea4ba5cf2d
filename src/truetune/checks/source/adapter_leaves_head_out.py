"""A classifier's LoRA config has the task type of a causal model, so its head is not saved.

## What it does
Looks for `LoraConfig(task_type="CAUSAL_LM")`, or one without a task type, that has no `modules_to_save` and is used for
a model with a classification head (`*ForSequenceClassification`, `*ForTokenClassification`). It follows
`get_peft_model` and the `peft_config` of TRL's trainers; TRL's `RewardTrainer` builds such a model from a name, too.

## Why it is bad
peft trains and saves a classifier's head only for the task types SEQ_CLS and TOKEN_CLS. With another type the head
keeps its random initial values and the adapter learns to fit them. After a reload the head has different random values,
so the scores are wrong.

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
Safe: the adapter's own layers are the same. The adapter has to be trained again, since the saved one has no head.

## References
- huggingface/peft#577, huggingface/peft#876, huggingface/trl#1379, huggingface/transformers#26160
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

CLASSIFIERS = ("transformers.*ForSequenceClassification*", "transformers.*ForTokenClassification*")
REWARD_TRAINERS = ("trl.RewardTrainer", "trl.*.RewardTrainer")
ADAPTER_TAKERS = ("peft.get_peft_model", "trl.*Trainer")
CAUSAL_TASKS = ("CAUSAL_LM", "peft.TaskType.CAUSAL_LM")


class AdapterLeavesHeadOut(SourceRule):
    code = "SRC066"
    fault = Fault.TRAINED_HEAD_LOST
    symptoms = ("garbage-output", "dpo-without-effect")
    severity = "error"
    since = "0.1.0"
    looks_at = places_of_calls("calls that put an adapter on a model", *ADAPTER_TAKERS)

    def findings(self) -> Iterator[Finding]:
        """Findings on adapters for classifiers that are declared so that the head is not saved."""
        module = self.subject
        for call in module.calls(*ADAPTER_TAKERS):
            head = _classifier_given_adapter(module, call)
            config = _only_lora_config(module, call)
            task = None if config is None else _task_that_drops_head(module, config)
            if head is None or config is None or task is None:
                continue
            yield self.finding(
                f"a classifier has a LoRA config {task}: peft freezes its head and does not save it, so a"
                " randomly initialised head gets new random values at each load",
                'set task_type="SEQ_CLS" ("TOKEN_CLS" for token classification), and train again: adapters of'
                " earlier runs do not contain the head",
                cases=[case_of_node(module, config.node), case_of_node(module, head)],
            )


def _classifier_given_adapter(module: Module, call: Call) -> ast.AST | None:
    """The call that makes the classifier which gets the adapter; None where it is another model, or
    not known.
    """
    model = call.argument(0, "model")
    loaded = _origin_nodes(module, model)
    for head in module.calls(*CLASSIFIERS):
        if head.node in loaded:
            return head.node
    # A name instead of a model: TRL loads a classifier of it for this trainer alone.
    if call.named(*REWARD_TRAINERS) and model is not None:
        return call.node if isinstance(module.flow.value(model), str) else None
    return None


def _only_lora_config(module: Module, call: Call) -> Call | None:
    """The one config of LoRA that a call gets."""
    place = 1 if call.named("peft.get_peft_model") else -1
    nodes = _origin_nodes(module, call.argument(place, "peft_config"))
    configs = [config for config in module.calls("peft.LoraConfig") if config.node in nodes]
    return configs[0] if len(configs) == 1 else None


def _task_that_drops_head(module: Module, config: Call) -> str | None:
    """For what an adapter is declared whose task lets peft leave the head out; None where it keeps it."""
    if not config.lacks("modules_to_save"):
        return None
    if config.lacks("task_type"):
        return "without a task_type"
    return "for CAUSAL_LM" if _is_lora_config_for_causal_model(module, config) else None


def _origin_nodes(module: Module, value: ast.expr | None) -> set[ast.AST]:
    """The nodes that a value comes from; empty where it is not given."""
    if value is None:
        return set()
    return {origin.node for origin in module.flow.origins(value)}


def _is_lora_config_for_causal_model(module: Module, config: Call) -> bool:
    """Does a config of LoRA name the task of a causal language model?"""
    task = config.keywords.get("task_type")
    return task is not None and (module.flow.name(task) or module.flow.value(task)) in CAUSAL_TASKS
