"""A loop trains under float16 autocast without a GradScaler: small gradients become 0.

## What it does
Looks at backward passes of losses that were computed under `autocast` with float16, in files that create no
`GradScaler` and leave the backward pass to no library (accelerate, Fabric, DeepSpeed, Lightning).

## Why it is bad
The smallest number above 0 in float16 is 6e-8, and many gradients of activations are smaller. Layers far from the loss
get no gradient, and the loss falls more slowly or not at all. No error is raised.

## Example
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model").to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Use instead
```python
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("model").to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in loader:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Fix safety
bfloat16 needs no scaler, but an Ampere GPU or newer (2020: A100, RTX 30). On an older GPU keep float16, and create
`scaler = torch.amp.GradScaler("cuda")` before the loop. In the loop replace `loss.backward()` and `optimizer.step()` by
`scaler.scale(loss).backward()`, `scaler.step(optimizer)` and `scaler.update()`.

## References
- https://docs.pytorch.org/docs/stable/notes/amp_examples.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.backward_and_optimizer_step_calls import (
    backward_calls,
    possible_losses,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

CUDA_AUTOCAST = "torch.cuda.amp.autocast"
AUTOCASTS = (
    "torch.autocast",
    "torch.amp.autocast",
    CUDA_AUTOCAST,
    "torch.amp.autocast_mode.autocast",
)
SCALES_ELSEWHERE = re.compile(
    r"GradScaler|loss_scale|[Aa]ccelerat|deepspeed|[Ll]ightning|\bfabric\b|\bapex\b|scaler|Trainer\b"
)
"""In files: what may scale the loss"""
WITHOUT_GRADIENT = re.compile(r"no_grad|inference_mode")
FLOAT16 = ("torch.float16", "torch.half")


def float16_autocasts(module: Module) -> Iterator[Call]:
    """The autocasts to float16: by their dtype, or by the default of CUDA."""
    for call in module.calls(*AUTOCASTS):
        if call.open or _is_autocast_disabled(module, call):
            continue
        dtype = call.argument(1, "dtype")
        if dtype is None:
            if _is_cuda_autocast(module, call):
                yield call
        elif module.flow.name(dtype) in FLOAT16:
            yield call


def _is_autocast_disabled(module: Module, call: Call) -> bool:
    """Is an autocast given `enabled=False`, which is the first argument of CUDA's own one and the third of others?"""
    position = 0 if call.named(CUDA_AUTOCAST) else 2
    return module.flow.value(call.argument(position, "enabled")) is False


def _is_cuda_autocast(module: Module, call: Call) -> bool:
    """Is it an autocast of CUDA, whose dtype is float16 where none is given?"""
    if call.named(CUDA_AUTOCAST):
        return True
    return bool(module.flow.value(call.argument(0, "device_type")) == "cuda")


def unscaled_backward_passes(module: Module) -> Iterator[tuple[Call, Call]]:
    """The backward passes of losses under float16 autocast that nothing scales, each with the autocast."""
    if any(SCALES_ELSEWHERE.search(part.text) for part in module.self_and_files_run_together):
        return
    autocasts = {call.node: call for call in float16_autocasts(module)}
    for backward in backward_calls(module):
        for loss in possible_losses(backward):
            used = [
                autocasts[one]
                for one in _with_contexts_computing_loss(module, loss)
                if one in autocasts
            ]
            if used:
                yield backward, used[0]
                break


def _with_contexts_computing_loss(module: Module, loss: ast.expr) -> Iterator[ast.Call]:
    """The calls of the `with` statements under which the parts of a loss that have a gradient are computed."""
    for part in backward_slice(module, loss):
        items = [
            item.context_expr
            for up in module.parents(part)
            if isinstance(up, ast.With)
            for item in up.items
        ]
        # A teacher's answers have no gradient that could be too small.
        if not any(WITHOUT_GRADIENT.search(ast.unparse(item)) for item in items):
            yield from (item for item in items if isinstance(item, ast.Call))


class Float16GradientsNotScaled(SourceRule):
    code = "SRC474"
    fault = Fault.FLOAT16_RANGE_EXCEEDED
    symptoms = ("loss-does-not-fall",)
    severity = "error"
    looks_at = CodePlaces("autocasts to float16", float16_autocasts)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        for backward, autocast in unscaled_backward_passes(module):
            yield self.finding(
                "the loss is computed under float16 autocast without a gradient scaler: gradients below 6e-8 are"
                " rounded to 0",
                "set dtype=torch.bfloat16 in autocast; on a GPU without bfloat16 create"
                ' scaler = torch.amp.GradScaler("cuda") before the loop, and call scaler.scale(loss).backward(),'
                " scaler.step(optimizer) and scaler.update() in it",
                cases=[case_of_node(module, backward.node), case_of_node(module, autocast.node)],
            )
