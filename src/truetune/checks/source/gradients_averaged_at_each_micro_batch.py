"""A loop that accumulates gradients averages them between the processes at every micro-batch.

## What it does
Checks hand-written loops whose model is wrapped in DistributedDataParallel, or given to `accelerator.prepare` in a
script that a command starts as several processes (one per GPU). It fires if the optimizer steps only at some batches
(`if (i + 1) % 8 == 0`, or a counter that is compared) and nothing keeps the other backward passes from averaging:
neither `no_sync` nor `accelerator.accumulate`.

## Why it is bad
DDP sends all gradients over the network in every backward pass. Only their sum at the step is used, so 7 of 8 transfers
are wasted: over Ethernet, or PCIe without peer access, most of a step is waiting.

## Example
```python
import torch
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("nccl")
net = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5)
for i, batch in enumerate(loader):
    (net(**batch).loss / 8).backward()
    if (i + 1) % 8 == 0:
        optimizer.step()
        optimizer.zero_grad()
```

## Use instead
```python
import contextlib

import torch
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("nccl")
net = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5)
for i, batch in enumerate(loader):
    is_step = (i + 1) % 8 == 0
    with contextlib.nullcontext() if is_step else net.no_sync():
        (net(**batch).loss / 8).backward()
    if is_step:
        optimizer.step()
        optimizer.zero_grad()
```

## Fix safety
Safe: the sum of the gradients is the same. Under FSDP `no_sync` keeps whole gradients and takes more memory.

## References
- docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html: `no_sync`
- huggingface.co/docs/accelerate/concept_guides/gradient_synchronization
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.backward_and_optimizer_step_calls import (
    backward_calls,
    optimizer_steps_with_optimizers,
)
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    commands_that_launch_several_processes,
)
from truetune.source.parsed_source_file import Module

SPARES_TRANSFERS = re.compile(
    r"no_sync|\.accumulate\(|require_backward_grad_sync|set_requires_gradient_sync|deepspeed|DeepSpeed|FSDP"
    r"|FullyShardedDataParallel|fully_shard|register_comm_hook|all_reduce|[lL]ightning|[fF]abric"
)
"""Signs that the script or its library decides when gradients are averaged"""
DDP = "torch.*.DistributedDataParallel"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _counted_steps_with_condition_and_backward(
    module: Module,
) -> Iterator[tuple[ast.AST, ast.If, ast.AST]]:
    """Steps of an optimizer that a count of batches allows, with the condition and the backward pass before it."""
    for step, _ in optimizer_steps_with_optimizers(module):
        branch = next((one for one in module.parents(step.node) if isinstance(one, ast.If)), None)
        if branch is None or not _condition_counts_batches(branch.test):
            continue
        around = _innermost_loop_or_function(module, branch)
        for backward in backward_calls(module):
            outside = branch not in set(module.parents(backward.node))
            if outside and _innermost_loop_or_function(module, backward.node) is around:
                yield step.node, branch, backward.node
                break


def _conditional_optimizer_steps(module: Module) -> Iterator[ast.AST]:
    """Steps of an optimizer under any condition: also of loops that put the averaging off."""
    for step, _ in optimizer_steps_with_optimizers(module):
        if any(isinstance(one, ast.If) for one in module.parents(step.node)):
            yield step.node


def _innermost_loop_or_function(module: Module, node: ast.AST) -> ast.AST | None:
    """The innermost loop or function around a place."""
    kinds = (ast.For, ast.While, *FUNCTIONS)
    return next((one for one in module.parents(node) if isinstance(one, kinds)), None)


def _condition_counts_batches(test: ast.expr) -> bool:
    """Does a test count batches: by a remainder, or a counter that is compared (`(i + 1) % 8 == 0`,
    `self.pending == self.accumulate`)?
    """
    if any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod) for part in ast.walk(test)):
        return True
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    is_compared = isinstance(test.ops[0], ast.Eq | ast.GtE)
    return is_compared and "accum" in ast.unparse(test.comparators[0]).lower()


class GradientsAveragedAtEachMicroBatch(SourceRule):
    code = "SRC379"
    fault = Fault.GPUS_COMMUNICATE_SLOWLY
    symptoms = ("several-gpus", "slow-training")
    severity = "info"
    looks_at = CodePlaces("optimizer steps at some batches of a loop", _conditional_optimizer_steps)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        if any(SPARES_TRANSFERS.search(part.text) for part in module.self_and_files_run_together):
            return
        wrapper = _advice_to_postpone_averaging(module)
        if wrapper is None:
            return
        for step, branch, backward in _counted_steps_with_condition_and_backward(module):
            yield self.finding(
                "gradients are averaged between the processes at every micro-batch, although the optimizer steps"
                " only at some"
                " of them: the other transfers are wasted time, most of all between machines or without NVLink",
                f"run the backward passes of the other micro-batches under {wrapper}",
                evidence=[
                    f"the condition in line {module.place(branch)[0]}: {ast.unparse(branch.test)}"
                ],
                cases=[case_of_node(module, backward), case_of_node(module, step)],
            )
            return


def _advice_to_postpone_averaging(module: Module) -> str | None:
    """How the averaging is put off for the wrapper that the script uses; None where it runs as one process."""
    parts = module.self_and_files_run_together
    if any(True for part in parts for _ in part.calls(DDP)):
        return "model.no_sync()"
    by_accelerate = any(True for part in parts for _ in part.calls("accelerate.Accelerator"))
    is_several = any(
        True for part in parts for _ in commands_that_launch_several_processes(Path(part.path))
    )
    if not by_accelerate or not is_several:
        return None
    return "accelerator.accumulate(model), with Accelerator(gradient_accumulation_steps=N)"
