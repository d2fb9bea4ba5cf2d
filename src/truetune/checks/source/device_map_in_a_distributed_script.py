"""A script that is launched once per GPU splits its model over all GPUs in each process.

## What it does
Looks for `device_map="auto"` (or balanced, sequential), for a model that `dispatch_model` spreads by a map from
`infer_auto_device_map`, and for a map that names one GPU by number (`{"": 0}`, `"cuda:0"`). It fires in a file whose
code reads `LOCAL_RANK` or `WORLD_SIZE`, starts `torch.distributed` or processes itself (`notebook_launcher`), or whose
comments start several processes (`torchrun --nproc_per_node 4 train.py`, `accelerate launch --multi_gpu train.py`). Not
reported: a map or call under a condition on the number of processes, and a file that stops if there are several.

## Why it is bad
Each process spreads its model over all GPUs: they compete for memory, layers are placed on other processes' devices,
and data parallelism is lost. accelerate raises an error in some launches, but not in all.

## Example
```python
import os

from transformers import AutoModelForCausalLM, Trainer

local_rank = int(os.environ["LOCAL_RANK"])
model = AutoModelForCausalLM.from_pretrained("model", device_map="auto")
trainer = Trainer(model=model)
```

## Use instead
```python
import os

from transformers import AutoModelForCausalLM, Trainer

local_rank = int(os.environ["LOCAL_RANK"])
model = AutoModelForCausalLM.from_pretrained("model", device_map={"": local_rank})
trainer = Trainer(model=model)
```

## Fix safety
Without `device_map` the trainer places the model itself. Use `{"": local_rank}` for quantized models.

## References
- huggingface/transformers#31557, huggingface/accelerate#2486, QwenLM/Qwen#900, QwenLM/Qwen#833
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
from truetune.checks.source.evidence.device_maps_spreading_model_over_gpus import (
    SPREADING_DEVICE_MAPS,
)
from truetune.checks.source.evidence.process_counts import (
    command_starting_several_processes,
    is_kept_from_several_processes,
    refuses_several_processes,
    signs_of_several_processes,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

ONE_GPU = re.compile(r"cuda:(\d+)")
PLACING = ("accelerate.dispatch_model", "accelerate.load_checkpoint_and_dispatch")
"""Functions that put the layers of a model where a map says"""
COUNTS_OR_RANK = re.compile(r"rank|process|world|local", re.I)


def _device_mapped_models_of_several_processes(module: Module) -> Iterator[Call]:
    """Models that are given a device map, in a file that runs as several processes."""
    mapped = list(_models_given_device_map(module))
    # The commands of a project are read only where there is a map to judge.
    if mapped and (
        any(signs_of_several_processes(module))
        or command_starting_several_processes(module) is not None
    ):
        yield from mapped


def _models_given_device_map(module: Module) -> Iterator[Call]:
    """Calls that load a model with a device map, or place one by it."""
    for call in module.all_calls:
        is_model = "model" in module.flow.types(call.node) or call.named(*PLACING)
        if is_model and _device_map_of(call) is not None:
            yield call


def _device_map_of(call: Call) -> ast.expr | None:
    """The device map that a call is given; None where it is given none."""
    if call.named(*PLACING):
        return call.argument(1 if call.named("accelerate.dispatch_model") else 2, "device_map")
    return call.keywords.get("device_map")


def _device_map_spreading_over_all_gpus(module: Module, value: ast.expr) -> str | None:
    """What spreads the model over all GPUs: `"auto"`, or a map that accelerate computes; None where nothing does."""
    device_map = module.flow.value(value)
    if device_map in SPREADING_DEVICE_MAPS:
        return f'device_map="{device_map}"'
    maker = module.flow.producing_call(value)
    if maker is None or not maker.named("accelerate.infer_auto_device_map"):
        return None
    # A limit of memory by rank leaves each process its own GPUs; one that is set by hand says that the split is meant.
    limits = maker.argument(1, "max_memory")
    nodes = [] if limits is None else [limits, *(o.node for o in module.flow.origins(limits))]
    if any(
        isinstance(node, ast.Dict) or COUNTS_OR_RANK.search(module.text_of(node)) for node in nodes
    ):
        return None
    return "a map of infer_auto_device_map"


class DeviceMapInADistributedScript(SourceRule):
    code = "SRC062"
    fault = Fault.DEVICE_MAP_IN_DISTRIBUTED_TRAINING
    severity = "error"
    since = "0.1.0"
    looks_at = CodePlaces(
        "device maps in scripts of several processes", _device_mapped_models_of_several_processes
    )

    def findings(self) -> Iterator[Finding]:
        """Findings on models that each of several processes spreads over all GPUs, or puts on the same
        one, by a device map.
        """
        module = self.subject
        # Commands of the project are opened only where a map stands in the file.
        if not any(_device_mapped_models_of_several_processes(module)):
            return
        sign = _sign_of_several_processes(module)
        if (
            sign is None
            or not _makes_trainer_or_optimizer(module)
            or refuses_several_processes(module)
        ):
            return
        mapped = list(_models_given_device_map(module))
        for call in mapped:
            value = _device_map_of(call)
            if value is None:
                continue
            device_map = module.flow.value(value)
            # Of several models, one may have a GPU of its own.
            is_on_one_gpu = len(mapped) == 1 and _names_one_gpu(device_map)
            spreading = _device_map_spreading_over_all_gpus(module, value)
            if spreading is None and not is_on_one_gpu:
                continue
            spellings = (call.node, *_places_naming_map(module, value))
            if not any(is_kept_from_several_processes(module, node) for node in spellings):
                yield self._finding_on_device_mapped_model(call, device_map, spreading, sign)

    def _finding_on_device_mapped_model(
        self, call: Call, device_map: object, spreading: str | None, sign: str
    ) -> Finding:
        """The finding on one model; `sign` is what starts several processes."""
        if spreading is None:
            message = (
                f"device_map={device_map!r} puts the models of all processes on GPU"
                f" {_gpu_number(device_map)}"
            )
            remedy = (
                'set device_map={"": int(os.environ["LOCAL_RANK"])}, or'
                ' {"": PartialState().local_process_index} with accelerate'
            )
        else:
            message = (
                f"{spreading} in a script that is launched once per GPU: each process spreads its model over"
                " all GPUs"
            )
            remedy = (
                "remove the device map, and move the model to the GPU of its process:"
                ' model.to(int(os.environ["LOCAL_RANK"]))'
                if call.named(*PLACING)
                else 'leave device_map out; for a quantized model, set device_map={"": local_rank}, with local_rank ='
                ' int(os.environ["LOCAL_RANK"])'
            )
        return self.finding(
            message,
            remedy,
            evidence=[f"the script is meant for several processes: {sign}"],
            cases=[case_of_node(self.subject, call.node)],
        )


def _sign_of_several_processes(module: Module) -> str | None:
    """What starts several processes, in the file or in a command of the project; None where nothing does."""
    signs = (module.text_of(node) for node in signs_of_several_processes(module))
    return next(signs, None) or command_starting_several_processes(module)


def _makes_trainer_or_optimizer(module: Module) -> bool:
    """Does the file make a trainer or an optimizer?"""
    return any({"trainer", "optimizer"} & module.flow.types(call.node) for call in module.all_calls)


def _gpu_number(given: object) -> str:
    """The number of the one GPU that a device map names for the whole model; empty where it names none."""
    place = given.get("") if isinstance(given, dict) and set(given) == {""} else given
    if type(place) is int:
        return str(place)
    match = ONE_GPU.fullmatch(place) if isinstance(place, str) else None
    return match[1] if match else ""


def _names_one_gpu(given: object) -> bool:
    """Does a device map put the whole model on one GPU?"""
    return bool(_gpu_number(given))


def _places_naming_map(module: Module, value: ast.expr) -> Iterator[ast.AST]:
    """Where the name of the map is written."""
    yield value
    yield from (origin.node for origin in module.flow.origins(value))
