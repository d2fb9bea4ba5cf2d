"""All processes put their model on the same GPU.

## What it does
Looks for a script that starts `torch.distributed` itself and wraps its model in DistributedDataParallel, where the
model goes to `"cuda"` (or `"cuda:0"`) without a number, and nothing calls `torch.cuda.set_device` or sets
CUDA_VISIBLE_DEVICES for the process.

## Why it is bad
`"cuda"` is the current device, which is GPU 0 in every process until it is set. All models lie on GPU 0, which runs
out of memory or does the work of all, and NCCL stops with "Duplicate GPU detected". The other GPUs stay idle.

## Example
```python
import torch
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM

torch.distributed.init_process_group("nccl")
model = AutoModelForCausalLM.from_pretrained("model").to("cuda")
model = DistributedDataParallel(model)
```

## Use instead
```python
import os

import torch
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM

torch.distributed.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = AutoModelForCausalLM.from_pretrained("model").to("cuda")
model = DistributedDataParallel(model)
```

## Fix safety
Safe: the call stands before the first tensor on a GPU.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
- pytorch/pytorch#62316
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes import case_at
from truetune.checks.source.evidence.multi_process_loops import wrapped_models
from truetune.source.module import Module
from truetune.source.resolved_calls import Call

SETS_DEVICE = ("set_device", "CUDA_VISIBLE_DEVICES", "device_mesh", "cuda:{")
"""Signs that a process has a device of its own; said of all files together"""
FIRST = ("cuda", "cuda:0")


class ProcessesShareAGpu(SourceRule):
    code = "SRC093"
    severity = "error"
    looks_at = CodePlaces("models that own loops wrap for several processes", wrapped_models)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        wrapped = list(wrapped_models(module))
        if not wrapped or any(part.mentions(*SETS_DEVICE) for part in module.with_linked):
            return
        if any(_makes_own_device(part) for part in module.with_linked):
            return
        if any("device_ids" in call.keywords or call.open for call in wrapped):
            return  # device_ids that differ from the model's device raise at once
        moved = next(
            (call for call in _moves_to_first_gpu(module) if _is_of_a_model(module, call)), None
        )
        if moved is not None:
            yield self.finding(
                "every process puts its model on GPU 0: `cuda` is the current device, and nothing sets it",
                'call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before the first tensor on a GPU',
                cases=[case_at(module, moved.node), case_at(module, wrapped[0].node)],
            )


def _makes_own_device(module: Module) -> bool:
    """Is a device made that may be another in each process: `torch.device("cuda", local_rank)`?"""
    for call in module.calls("torch.device"):
        named = module.flow.value(call.argument(0, "type"))
        # Two arguments of torch.device: the second is the number of the GPU, which differs between processes.
        if len(call.args) + len(call.keywords) > 1 or named not in (*FIRST, "cpu"):
            return True
    return False


def _device_of(module: Module, call: Call) -> object:
    """The device that something is put on, by its name or through `torch.device`."""
    argument = call.argument(0, "device")
    nodes = (
        [origin.node for origin in module.flow.origins(argument)] if argument is not None else []
    )
    if (
        len(nodes) == 1
        and isinstance(nodes[0], ast.Call)
        and ast.unparse(nodes[0].func) == "torch.device"
    ):
        argument = nodes[0].args[0] if nodes[0].args else None
    return module.flow.value(argument)


def _moves_to_first_gpu(module: Module) -> Iterator[Call]:
    """Calls that put something on the current GPU, or on the first."""
    for call in module.methods("cuda", "to"):
        device = _device_of(module, call)
        if (call.method == "cuda" and not call.args and not call.keywords) or device in FIRST:
            yield call


def _is_of_a_model(module: Module, call: Call) -> bool:
    """Is it a model that is moved, and no batch?"""
    return call.receiver is not None and "model" in module.flow.types(call.receiver)
