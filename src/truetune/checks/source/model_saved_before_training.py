"""A model is saved before it is trained, and never after it.

## What it does
Looks at files that train, in a hand-written loop or by a trainer with `save_strategy="no"`, and save the model. It
fires if every `save_pretrained`, `save_model` and `torch.save` of weights runs before the training. It does not fire if
one of them runs after it or inside its loop, or if the order can't be determined.

## Why it is bad
The saved weights are those that were loaded. The training goes well, but its result is lost when the process ends: the
saved model answers like the base.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
model.save_pretrained("out")
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.save_pretrained("out")
```

## Fix safety
Safe: the call moves after the loop. If you also want the initial weights, save them to a different folder.

## References
- pytorch/examples: every training script there saves after its loop
- allenai/OLMo#233: why a folder of untrained weights may be meant
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.which_place_surely_runs_first import (
    Route,
    call_routes_to,
    route_runs_only_before,
    training_places,
)
from truetune.source.parsed_source_file import Module

SAVES = (
    "save_pretrained",
    "save_model",
    "save_pretrained_merged",
    "push_to_hub",
    "save_checkpoint",
    "save_state",
    "save_16bit_model",
    "save_16bit_checkpoint",
    "save_adapter",
    "save",
    "save_file",
    "save_as_safetensors",
)
OF_TORCH = ("torch.save", "safetensors.torch.save*", "*.save_file", "*.save_model", "*.dcp.save")
NOT_WEIGHTS = frozenset(("tokenizer", "processor", "dataset", "lora"))


def _possible_weight_saves(module: Module) -> Iterator[ast.Call]:
    """Calls that may save weights, in a file that trains."""
    if not any(training_places(module)):
        return
    for call in module.methods(*SAVES):
        if call.receiver is not None and not NOT_WEIGHTS & module.flow.types(call.receiver):
            yield call.node
    for call in module.calls(*OF_TORCH):
        yield call.node


class ModelSavedBeforeTraining(SourceRule):
    code = "SRC025"
    fault = Fault.SAVED_MODEL_IS_THE_BASE
    symptoms = ("nothing-is-learned",)
    severity = "error"
    looks_at = CodePlaces("models that are saved in files that train", _possible_weight_saves)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        saves = list(_possible_weight_saves(module))
        trainings = [
            route for node in training_places(module) for route in call_routes_to(module, node)
        ]
        if not saves or not trainings or _may_trainer_save(module):
            return
        if not all(_runs_before_every_training(module, save, trainings) for save in saves):
            return
        model = next((save for save in saves if _is_save_of_model(module, save)), None)
        if model is not None:
            name = module.text_of(model)
            yield self.finding(
                f"{name} runs before the training, and nothing saves the weights after it: the trained weights are"
                " lost",
                f"move {name} after the training",
                cases=[case_of_node(module, model), case_of_node(module, trainings[0][0].node)],
            )


def _is_save_of_model(module: Module, save: ast.Call) -> bool:
    """Is it certainly a model whose weights are saved?"""
    receiver = module.flow.call(save).receiver
    parts = [receiver] if receiver is not None else []
    for argument in save.args[:1]:
        parts += [
            node.func.value
            for node in ast.walk(argument)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        ]
    return any("model" in module.flow.types(part) for part in parts)


def _may_trainer_save(module: Module) -> bool:
    """Does a trainer save checkpoints, or may it?"""
    for call in module.calls("transformers.*Trainer", "trl.*Trainer"):
        settings = call.argument(1, "args")
        arguments = module.flow.producing_call(settings) if settings is not None else None
        strategy = arguments.keywords.get("save_strategy") if arguments is not None else None
        if module.flow.value(strategy) != "no":
            return True
    return False


def _runs_before_every_training(module: Module, save: ast.AST, trainings: list[Route]) -> bool:
    """Does a save run before every training, by whatever calls it is reached?

    One save that may run after a training is enough: the trained weights are then on the disk.
    """
    return all(
        route_runs_only_before(module, route, training)
        for route in call_routes_to(module, save)
        for training in trainings
    )
