"""All processes put their model on the same GPU.

## What it does
Looks for a script that starts `torch.distributed` itself and wraps its model in DistributedDataParallel. It fires if
the model is moved to, or loaded on, `"cuda"` (or `"cuda:0"`) without a rank, and nothing calls `torch.cuda.set_device`
or sets CUDA_VISIBLE_DEVICES for the process. It also fires on `torch.cuda.set_device(0)`, or `"cuda:0"`, in every
process.

## Why it is bad
`"cuda"` is the current device, which is GPU 0 in every process until it is set. All models are on GPU 0, which runs out
of memory or does all of the work, or NCCL stops with "Duplicate GPU detected". The other GPUs stay idle.

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
Safe: put the call before the first tensor on a GPU.

## References
- https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
- pytorch/pytorch#62316
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.multi_process_loops import models_wrapped_by_own_loops
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.find_command_line_option_values import find_option_default
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Choice,
    Constant,
    Result,
    Value,
)

SETS_DEVICE = ("set_device", "CUDA_VISIBLE_DEVICES", "device_mesh", "cuda:{")
"""Signs that a process has a device of its own; said of all files together"""
FIRST = ("cuda", "cuda:0", 0)
OTHER_THAN_CUDA = ("cpu", "mps")
"""What a script falls back to where there is no GPU"""


def _wrapped_models_and_set_devices(module: Module) -> Iterator[object]:
    """Models that are wrapped, and devices that are set; what the rule looks at."""
    yield from models_wrapped_by_own_loops(module)
    yield from _set_device_calls_for_gpu_0(module)


class ProcessesShareAGpu(SourceRule):
    code = "SRC093"
    fault = Fault.PROCESSES_USE_WRONG_GPUS
    severity = "error"
    looks_at = CodePlaces(
        "models and devices of own loops for several processes", _wrapped_models_and_set_devices
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        wrapped = list(models_wrapped_by_own_loops(module))
        yield from self._findings_on_set_device()
        if not wrapped or _may_choose_device_per_process(module, wrapped):
            return
        moved = next(
            (
                call
                for call in _moves_or_loads_to_first_gpu(module)
                if _is_move_of_model(module, call)
                or _is_moved_object_given_to_ddp(module, call, wrapped)
            ),
            None,
        )
        if moved is not None:
            yield self.finding(
                "every process puts its model on GPU 0: `cuda` means the current device, and nothing sets it per"
                " process",
                'call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before the first tensor on a GPU',
                cases=[case_of_node(module, moved.node), case_of_node(module, wrapped[0].node)],
            )

    def _findings_on_set_device(self) -> Iterator[Finding]:
        """Findings on `torch.cuda.set_device(0)` in every process, whatever its rank."""
        module = self.subject
        if any(
            part.mentions("CUDA_VISIBLE_DEVICES", "torch.cuda.device(")
            for part in module.self_and_files_run_together
        ):
            return
        for call in _set_device_calls_for_gpu_0(module):
            yield self.finding(
                "every process sets GPU 0 as its device: all models are on it, and NCCL stops with a duplicate GPU",
                'call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])), and use that number in every device name',
                cases=[case_of_node(module, call.node)],
            )
            return


def _set_device_calls_for_gpu_0(module: Module) -> Iterator[CallEvent]:
    """The calls of `set_device` in a file that name GPU 0, in runs whose calls of it all do, and wrap a model."""
    for trace in traces_of_scripts_that_reach_file(module):
        set_devices = list(trace.calls("torch.cuda.set_device"))
        joins = any(trace.calls("torch.distributed.init_process_group"))
        if not joins or not any(trace.calls("torch.*.DistributedDataParallel")):
            continue
        # Under a condition it may be the device of one process alone.
        if any(next(call.frames("branch"), None) is not None for call in set_devices):
            continue
        if all(_is_first_gpu(call.argument(0, "device")) for call in set_devices):
            yield from (call for call in set_devices if call.home.path == module.path)


def _is_first_gpu(device: Value | None) -> bool:
    """Is the device GPU 0, as it is written: no option and no variable of a launcher, which has 0
    as its default?
    """
    if isinstance(device, Choice):
        return all(map(_is_first_gpu, device.options))
    if isinstance(device, Attribute) and device.name == "index":
        return _is_first_gpu(device.base)
    if isinstance(device, Result) and device.call.named("torch.device"):
        number = device.call.argument(1, "index")
        return _is_first_gpu(number or device.call.argument(0, "type"))
    return isinstance(device, Constant) and device.value in ("cuda:0", 0)


def _may_choose_device_per_process(module: Module, wrapped: list[Call]) -> bool:
    """May each process have a device of its own: by a call that sets it, a device that is made, or the wrapper?"""
    # device_ids that differ from the model's device raise at once.
    if any("device_ids" in call.keywords or call.open for call in wrapped):
        return True
    return any(
        part.mentions(*SETS_DEVICE) or _may_make_device_per_process(part)
        for part in module.self_and_files_run_together
    )


def _may_make_device_per_process(module: Module) -> bool:
    """Is a device made that may be another in each process: `torch.device("cuda", local_rank)`?"""
    for call in module.calls("torch.device"):
        # Two arguments of torch.device: the second is the number of the GPU, which differs between processes.
        if len(call.args) + len(call.keywords) > 1:
            return True
        named = call.argument(0, "type")
        if named is None or not set(_possible_devices(module, named)) <= {*FIRST, *OTHER_THAN_CUDA}:
            return True
    return False


def _possible_devices(module: Module, node: ast.AST, depth: int = 3) -> Iterator[object]:
    """The devices that an expression may name: `torch.device("cuda" if is_available() else "cpu")` names two."""
    for origin in module.flow.origins(node):
        made = origin.node
        named = None
        if isinstance(made, ast.Call) and module.flow.name(made.func) == "torch.device":
            named = module.flow.call(made).argument(0, "type")
        if named is None or depth == 0:
            default = find_option_default(module, made)
            yield module.flow.value(default or made)
        else:
            yield from _possible_devices(module, named, depth - 1)


def _moves_or_loads_to_first_gpu(module: Module) -> Iterator[Call]:
    """Calls that put something on the current GPU, or on the first, or load it there."""
    for call in module.all_calls:
        loads = "device_map" in call.keywords
        if not loads and call.method not in ("cuda", "to"):
            continue
        if call.method == "cuda" and not call.args and not call.keywords:
            yield call
            continue
        argument = call.keywords["device_map"] if loads else call.argument(0, "device")
        devices = set(_possible_devices(module, argument)) if argument is not None else set()
        if devices.intersection(FIRST) and devices <= {*FIRST, *OTHER_THAN_CUDA}:
            yield call


def _is_move_of_model(module: Module, call: Call) -> bool:
    """Does the call move or load a model, and no batch?"""
    moved = call.node if "device_map" in call.keywords else call.receiver
    return moved is not None and "model" in module.flow.types(moved)


def _is_moved_object_given_to_ddp(module: Module, call: Call, wrapped: list[Call]) -> bool:
    """Is what is moved given to DistributedDataParallel: a module of the user's own has no type that is known?"""
    for wrapper in wrapped:
        module_argument = wrapper.argument(0, "module")
        if module_argument is None:
            continue
        if any(origin.node is call.node for origin in module.flow.origins(module_argument)):
            return True
        names = isinstance(module_argument, ast.Name | ast.Attribute) and call.receiver is not None
        if names and ast.unparse(module_argument) == ast.unparse(call.receiver or module_argument):
            return True
    return False
