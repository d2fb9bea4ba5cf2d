"""The model inside the adapter's wrapper is saved: its adapted layers have names that only PEFT knows.

## What it does
Looks at `save_pretrained` and `push_to_hub` of `model.base_model.model` and `model.get_base_model()` in a file that
makes, loads or trains an adapter. It does not fire if the adapter was merged or unloaded before.

## Why it is bad
PEFT puts its layers into the model itself. The saved file then has `q_proj.base_layer.weight` and `q_proj.lora_A...`,
but no `q_proj.weight`. `from_pretrained` initialises every adapted layer at random, and only warns: the loaded model is
worse than the base.

## Example
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer

model = AutoModelForCausalLM.from_pretrained("model")
model = get_peft_model(model, LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM"))
trainer = Trainer(model=model, train_dataset=rows)
trainer.train()
model.get_base_model().save_pretrained("out")
```

## Use instead
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer

model = AutoModelForCausalLM.from_pretrained("model")
model = get_peft_model(model, LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM"))
trainer = Trainer(model=model, train_dataset=rows)
trainer.train()
model.save_pretrained("out")
```

## Fix safety
`model.save_pretrained` writes only the adapter. `model.merge_and_unload().save_pretrained("out")` writes a whole model
that loads without PEFT.

## References
- https://huggingface.co/docs/peft/developer_guides/checkpoint (tried with peft 0.21.2 and transformers 5.23)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.source.call_with_resolved_names_and_arguments import Call, last_name_of_called
from truetune.source.parsed_source_file import Module

SAVES = ("save_pretrained", "push_to_hub")
INSIDE = re.compile(r"\.base_model\.model$|\.get_base_model\(\)$")
ADAPTERS = (
    "*.get_peft_model",
    "peft.PeftModel*.from_pretrained",
    "peft.AutoPeftModel*.from_pretrained",
)
TAKES_OUT = ("merge_and_unload", "unload", "merge_adapter")
"""Methods after which the layers of the adapter are gone, or their weights added"""


TAKES_LAYERS_OUT = re.compile(r"unwrap_model\(|base_layer")
"""In files: code that puts the plain layers back by itself"""


def _has_adapter(module: Module) -> bool:
    """Does a file make or load an adapter, or have a trainer make one?"""
    if any(module.calls(*ADAPTERS)):
        return True
    return any("peft_config" in call.keywords for call in module.calls("trl.*Trainer"))


def saves_of_inner_models(module: Module) -> Iterator[Call]:
    """The saves of a model that stands inside of a wrapper of PEFT."""
    if not _has_adapter(module) or TAKES_LAYERS_OUT.search(module.text):
        return
    for call in module.methods(*SAVES):
        if call.receiver is not None and _is_inner_model(module, call.receiver):
            yield call


def _is_inner_model(module: Module, saved: ast.expr) -> bool:
    """Is it the model inside, under its own name or another?"""
    nodes = [saved, *(origin.node for origin in module.flow.origins(saved))]
    texts = (ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute | ast.Call))
    return any(INSIDE.search(text) for text in texts)


def _is_adapter_removed_before_save(module: Module, save: Call) -> bool:
    """Does a call above take the adapter out of the model?"""
    return any(
        last_name_of_called(node) in TAKES_OUT and node.lineno <= save.node.lineno
        for node in module.nodes(ast.Call)
    )


class ModelInsideTheAdapterSaved(SourceRule):
    code = "SRC476"
    fault = Fault.WEIGHT_NAMES_DO_NOT_MATCH
    symptoms = ("garbage-output",)
    severity = "error"
    looks_at = CodePlaces("saves of a model inside of an adapter's wrapper", saves_of_inner_models)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for save in saves_of_inner_models(module):
            if _is_adapter_removed_before_save(module, save):
                continue
            yield self.finding(
                "the model inside the adapter's wrapper is saved: from_pretrained does not know the names of its"
                " adapted layers, and initialises them at random",
                "save the wrapper (model.save_pretrained) to write only the adapter, or save what"
                " model.merge_and_unload() returns to write a whole model",
                cases=[case_of_node(module, save.node)],
            )
