"""The GPU's cached memory is released at each training step.

## What it does
Follows `torch.cuda.empty_cache()` to the loop that contains it, or that calls the function with it, also from another
file. It fires if that is the training loop (it runs `backward` as well) and no condition or exception handler is around
the call, and if a callback calls it in `on_step_end`. Not reported: a call after an epoch, after an evaluation, every
hundred steps or after a caught error, a loop that also generates, and a loop over values listed in the code (sizes,
learning rates), which runs one experiment per value.

## Why it is bad
torch keeps freed memory to reuse it for the next batch. `empty_cache` waits until the GPU has finished and returns that
memory to the driver, and the next step has to request it again, piece by piece. cudaMalloc takes milliseconds, the
cache microseconds, and the GPU is idle meanwhile. It saves no memory for the run: each step needs its peak again.

## Example
```python
import gc
import torch

for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    gc.collect()
    torch.cuda.empty_cache()
```

## Use instead
```python
import gc
import torch

for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
```

## Fix safety
The training is the same, only faster. If rows of very uneven length fragment the memory,
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True helps without the waiting.

## References
- pytorch.org, "CUDA semantics", memory management; huggingface/transformers, `torch_empty_cache_steps`
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.examined_code_places import places_of_calls
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.code_run_in_every_training_step import (
    Loop,
    loop_or_hook_of_each_step,
)
from truetune.checks.source.evidence.which_place_surely_runs_first import call_routes_to
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

OF_GENERATION = re.compile(r"generate|\w{0,40}(?:trajector|rollout)")
EMPTIES = ("torch.cuda.empty_cache", "torch.cuda.memory.empty_cache")


class CacheEmptiedAtEachStep(SourceRule):
    code = "SRC266"
    fault = Fault.TRAINING_SLOWER_THAN_NEEDED
    symptoms = ("slow-training",)
    severity = "warning"
    stability = "preview"
    looks_at = places_of_calls("calls of torch.cuda.empty_cache", *EMPTIES)

    def findings(self) -> Iterator[Finding]:
        """Findings on calls of `empty_cache` that run in each training step."""
        module = self.subject
        for call in module.calls(*EMPTIES):
            around = _loop_or_callback_of_each_step(module, call)
            if around is None:
                continue
            yield self.finding(
                "the GPU's cached memory is released at each training step: the step waits for the GPU, and the next"
                " one has to request all of it again",
                "delete torch.cuda.empty_cache() (and gc.collect()) here; they save no memory in the loop (against"
                " fragmentation, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)",
                cases=[case_of_node(module, call.node), case_of_node(module, around)],
            )


def _loop_or_callback_of_each_step(module: Module, call: Call) -> ast.AST | None:
    """The loop or the callback that runs a call in each step; None where a condition or an error has to come first."""
    place = loop_or_hook_of_each_step(module, call.node)
    if isinstance(place, Loop) and (
        _generates_in_each_pass(module, place) or _loops_over_written_values(module, place)
    ):
        return None
    return place


def _generates_in_each_pass(module: Module, loop: Loop) -> bool:
    """Does each pass generate as well, or a loop around it? That takes seconds, and its cache is in the way of the
    backward pass."""
    loops = [loop, *(one for one in module.parents(loop) if isinstance(one, Loop))]
    inside = {node for one in loops for node in ast.walk(one)}
    if any(map(_does_node_name_generation, inside)):
        return True
    generating = [
        call.node
        for part in module.self_and_files_run_together
        for call in part.all_calls
        if _does_node_name_generation(call.node.func)
    ]
    return any(
        stop.node in inside
        for call in generating
        for route in call_routes_to(module, call)
        for stop in route
    )


def _does_node_name_generation(node: ast.AST) -> bool:
    """Does it name what generates, or what was generated to train on: `generate`, `trajectory`, `rollouts`?"""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return isinstance(name, str) and OF_GENERATION.match(name) is not None


def _loops_over_written_values(module: Module, loop: Loop) -> bool:
    """Does a loop go over values that the script writes out: sizes of a batch, learning rates, names of models?"""
    if not isinstance(loop, ast.For):
        return False
    listed = [origin.node for origin in module.flow.origins(loop.iter)]
    return bool(listed) and all(
        isinstance(one, ast.Tuple | ast.List)
        and one.elts
        and all(isinstance(entry, ast.Constant) for entry in one.elts)
        for one in listed
    )
