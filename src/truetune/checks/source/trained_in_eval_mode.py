"""A loop trains a model that was put into eval() mode.

## What it does
Looks for a loop that calls `backward()` and puts the model, whose parameters its optimizer has, into `eval()` mode,
by itself or in a function of the file, where nothing puts it back: neither calls `train()`.

## Why it is bad
From the first evaluation on dropout is off, batch norms keep their statistics, and gradient checkpointing of
transformers models is inactive: the run is regularised otherwise than set, and may run out of memory in its second
epoch.

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
Safe: `model.train()` as the first statement of the epoch.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.train
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

# Chosen: loop, epoch, step and one helper; recursion ends there.
DEPTH = 4
"""Functions of the file that are followed from a loop"""


def _training_loops(module: Module) -> Iterator[ast.AST]:
    """The outermost loops in which a loss is propagated back."""
    seen: set[ast.AST] = set()
    for call in module.methods("backward"):
        loops = [
            around
            for around in module.parents(call.node)
            if isinstance(around, ast.For | ast.While)
        ]
        if loops and loops[-1] not in seen:
            seen.add(loops[-1])
            yield loops[-1]


class TrainedInEvalMode(SourceRule):
    code = "SRC074"
    severity = "warning"
    looks_at = CodePlaces("loops that call backward", _training_loops)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for loop in _training_loops(module):
            code = list(_reached_nodes(module, loop))
            called = [module.flow.call(node) for node in code if isinstance(node, ast.Call)]
            # Any switch back in what the loop reaches: in which order both run is not followed.
            if any(call.method == "train" for call in called):
                continue
            for call in called:
                if call.method == "eval" and not call.args and _is_optimised(module, call):
                    yield self.finding(
                        "the model is put into eval() mode in the training loop, and nothing puts"
                        " it back",
                        "call model.train() at the beginning of each epoch",
                        cases=[case_at(module, call.node)],
                    )
                    break


def _is_optimised(module: Module, call: Call) -> bool:
    """Has an optimizer of the file the parameters of what is switched?"""
    if call.receiver is None:
        return False
    switched = {origin.node for origin in module.flow.origins(call.receiver)}
    for step in module.calls(
        "torch.optim.*", "bitsandbytes.optim.*", "transformers.AdamW", "transformers.Adafactor"
    ):
        parameters = step.argument(0, "params")
        for node in ast.walk(parameters) if parameters is not None else ():
            if isinstance(node, ast.Attribute) and node.attr in ("parameters", "named_parameters"):
                if switched & {origin.node for origin in module.flow.origins(node.value)}:
                    return True
    return False


def _reached_nodes(module: Module, code: ast.AST, depth: int = 0) -> Iterator[ast.AST]:
    """All nodes of some code, and of the functions of the file that it calls."""
    for node in ast.walk(code):
        yield node
        if isinstance(node, ast.Call) and depth < DEPTH:
            function = module.flow.function(node.func)
            if function is not None and function is not code:
                yield from _reached_nodes(module, function, depth + 1)
