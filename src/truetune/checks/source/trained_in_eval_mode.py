"""A loop trains a model that is in eval() mode.

## What it does
Runs a training loop symbolically, and checks the mode of the optimized model at each `backward()` after the first pass.
It fires if that is `eval()` mode: the loop, or a function, class or other file that it calls, switched there and
nothing switched back (`train()`, `train(was_training)`, Unsloth's `for_training`). A `train()` at the start of each
epoch comes too late for an evaluation between two steps. The same applies to methods that Lightning calls between steps
(`training_step`, `on_train_batch_end`): since 2.2 Lightning does not restore the mode after them.

It also fires if a model of `from_pretrained`, which returns it in `eval()` mode, is trained by an own loop or is a part
of a LightningModule (2.2 and later), and nothing in the script calls `train()`. That is reported only if the script or
the model's family says that there is a dropout, or checkpointing is on, and nothing is frozen.

## Why it is bad
From the first evaluation on, dropout is off, batch norms stop updating their statistics, and gradient checkpointing of
transformers models is inactive. The run has less regularisation than set, and may run out of memory at the step after
its first evaluation.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for epoch in range(3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        print(sum(model(**batch).loss for batch in held_out))
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for epoch in range(3):
    model.train()
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        print(sum(model(**batch).loss for batch in held_out))
```

## Fix safety
Safe: call `model.train()` after the evaluation, or as the first statement of each step. Dropout and gradient
checkpointing are then on again, so the training loss may be a little higher.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.train
- Lightning-AI/pytorch-lightning#18951
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Case, Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.models_trained_in_eval_mode import (
    HOOKS_OF_TRAINING,
    LeftInEvalMode,
    LoadedInEvalMode,
    features_disabled_by_eval_mode,
    models_left_in_eval_mode,
    models_trained_as_loaded,
)
from truetune.source.parsed_source_file import Module


def _backward_passes_and_hooks(module: Module) -> Iterator[ast.AST]:
    """Backward passes of a loop, and the methods that Lightning calls between steps."""
    for call in module.methods("backward"):
        yield call.node
    for node in module.nodes(ast.FunctionDef):
        if node.name in HOOKS_OF_TRAINING:
            yield node
    # A helper that evaluates lies in another file than the loop.
    for call in module.methods("eval"):
        yield call.node


class TrainedInEvalMode(SourceRule):
    code = "SRC074"
    fault = Fault.DROPOUT_IN_WRONG_MODE
    severity = "warning"
    looks_at = CodePlaces(
        "training steps and switches of a model's mode", _backward_passes_and_hooks
    )

    def findings(self) -> Iterator[Finding]:
        for left in models_left_in_eval_mode(self.subject):
            off = features_disabled_by_eval_mode(left.trace)
            yield self.finding(
                f"the model stays in eval() mode for the training steps after this: {_effects_of_eval_mode(off)}",
                "call model.train() after the evaluation, before the next training step; in a function that others"
                " call too: was = model.training before eval(), and model.train(was) at its end",
                cases=self._cases_of_switch(left),
            )

        for loaded in models_trained_as_loaded(self.subject):
            yield self._finding_on_load(loaded)

    def _finding_on_load(self, loaded: LoadedInEvalMode) -> Finding:
        """The finding on a model that nothing switches to training."""
        off = " and ".join(loaded.switched_off)
        who = "Lightning 2.2 and later leave" if loaded.is_in_lightning else "this loop leaves"
        return self.finding(
            f"from_pretrained returns this model in eval() mode, {who} it so, and nothing calls train():"
            f" {off} is off in the whole training",
            "call train() on it: after the load in __init__ (self.encoder.train()), or in on_fit_start"
            if loaded.is_in_lightning
            else "call model.train() before the first training step, and after each evaluation",
            cases=[case_of_node(self.subject, loaded.load.node)],
        )

    def _cases_of_switch(self, left: LeftInEvalMode) -> list[Case]:
        """Cases: the switch to eval mode, and the backward pass that meets it."""
        module = self.subject
        cases = [case_of_node(module, left.switch.node)]
        if left.backward is not None and left.backward.home.path == module.path:
            cases.append(case_of_node(module, left.backward.node))
        return cases


def _effects_of_eval_mode(off: tuple[str, ...]) -> str:
    """What eval mode switches off, by the names in `off`, and what comes of it, in words."""
    if not off:
        return "dropout is off, and so is gradient checkpointing"
    named = " and ".join(off)
    verb = "are" if len(off) > 1 else "is"
    memory = (
        ", and memory use grows to that of a run without it" if off[-1].startswith("grad") else ""
    )
    return f"{named} {verb} off from then on{memory}"
