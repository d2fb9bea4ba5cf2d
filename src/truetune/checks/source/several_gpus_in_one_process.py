"""A script that sees several GPUs is started as one process: DataParallel is used, or the GPUs work one after another.

## What it does
Checks how a file with a Trainer is started: `python train.py` in a shell script, a job or a README of the project that
makes several GPUs visible (`CUDA_VISIBLE_DEVICES=0,1`, `--gres=gpu:4`, `accelerators: H100:8` and `nvidia.com/gpu: 4`
in a task's YAML, `count: 4` of a compose file's GPUs; a module after `python -m` counts as its file), or a file that
sets them itself. It also reports a model that is trained this way with `device_map="auto"` (or balanced, sequential;
also in the settings that the command names), by a Trainer or a hand-written loop, also if a launcher starts a single
process; and `nn.DataParallel` in a hand-written loop.

It does not fire if a launcher starts several processes, if Slurm starts it several times, or with Unsloth, which uses
one GPU. A model spread by `device_map` is not reported if `max_memory` shows that the split is intended, and info if
the model may be too large for one GPU.

## Why it is bad
With more than one GPU in one process the Trainer wraps the model in `nn.DataParallel`: at each step the weights are
copied to all GPUs, and the logits of all of them are gathered on the first, which runs out of memory while the others
are half empty. This is slower than one process per GPU, and the batch is multiplied by the number of GPUs. With
`device_map="auto"` each GPU has some of the layers, and waits while the others compute theirs: four GPUs are no faster
than one.

## Example
```python
import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2,3"

from transformers import AutoModelForCausalLM, Trainer

trainer = Trainer(model=AutoModelForCausalLM.from_pretrained("model"), train_dataset=rows)
trainer.train()
```

## Use instead
```python
import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0"

from transformers import AutoModelForCausalLM, Trainer

trainer = Trainer(model=AutoModelForCausalLM.from_pretrained("model"), train_dataset=rows)
trainer.train()
```

## Fix safety
One process per GPU keeps the total batch size (rows per GPU times GPUs). With one GPU the batch gets smaller: raise
`gradient_accumulation_steps`. A learning rate that was tuned for the old batch fits the first way. A model that does
not fit on one GPU needs FSDP or ZeRO-3 (or 4 bits) before you remove `device_map`.

## References
- huggingface/transformers#15544, pytorch/pytorch#7138, huggingface/accelerate#197
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from truetune.checks.examined_code_places import CodePlaces
from truetune.checks.faults import Fault
from truetune.checks.findings import Finding
from truetune.checks.read_settings_in_launch_files import read_document_in_folder_or_parents
from truetune.checks.rule import SourceRule
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.device_maps_spreading_model_over_gpus import (
    SPREADING_DEVICE_MAPS,
)
from truetune.checks.source.evidence.single_process_starts_and_shown_gpus import (
    ONE_PROCESS,
    SingleProcessStart,
    find_single_process_multi_gpu_starts,
)
from truetune.checks.source.evidence.trace_answering_models_to_load import (
    billions_of_parameters_in_name,
    billions_of_parameters_of_model,
)
from truetune.checks.source.evidence.trained_models_spread_over_gpus import (
    may_fit_one_gpu,
    spread_load_of_trained_model,
)
from truetune.settings.located_document import LocatedDocument
from truetune.settings.stacks.find_who_reads_config_or_starts_script import commands_that_launch
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.evaluate_constant_expressions import UNKNOWN
from truetune.source.parsed_source_file import Module

TRAINERS = ("transformers.*Trainer", "trl.*Trainer")
DATA_PARALLEL = ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel")
VARIABLE = "CUDA_VISIBLE_DEVICES"


def _trainers_and_spread_models(module: Module) -> Iterator[Call]:
    """Trainers that are made, and models that a training of any kind spreads."""
    yield from module.calls(*TRAINERS, *DATA_PARALLEL)
    load = spread_load_of_trained_model(module)
    if load is not None:
        yield load


class SeveralGpusInOneProcess(SourceRule):
    code = "SRC031"
    fault = Fault.GPUS_LEFT_UNUSED
    severity = "warning"
    looks_at = CodePlaces("trainers and spread models", _trainers_and_spread_models)

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        # unsloth uses one GPU, whatever it is shown.
        if module.this_or_linked_file_imports_unsloth:
            return
        visible = _unconditional_visible_devices(module)
        starts = (
            list(find_single_process_multi_gpu_starts(Path(module.path))) if visible is None else []
        )
        load = spread_load_of_trained_model(module) or _load_spread_by_settings(module, starts)
        if load is not None:
            yield from self._findings_on_spread_model(load, visible, starts)
            return
        copied = next(module.calls(*DATA_PARALLEL), None)
        if copied is not None and module.mentions(".backward("):
            yield from self._findings_on_data_parallel_model(copied, visible, starts)
            return
        yield from self._findings_on_trainer(visible, starts)

    def _findings_on_data_parallel_model(
        self,
        wrap: Call,
        visible: ast.Assign | ast.Call | None,
        starts: list[SingleProcessStart],
    ) -> Iterator[Finding]:
        """Findings on a hand-written loop that wraps its model in DataParallel, and is shown
        several GPUs.
        """
        module = self.subject
        start = next((one for one in starts if not one.launcher), None)
        gpus = self._gpu_count_of_data_parallel(wrap, visible, start)
        if gpus < 2 or any(commands_that_launch(Path(module.path))):
            return
        yield self.finding(
            f"nn.DataParallel trains on {gpus} GPUs in one process: each step copies all weights to every GPU, and"
            " gathers the outputs on the first, which fills up while the others wait",
            f"start one process per GPU (`torchrun --nproc-per-node {gpus}`), and wrap the model in"
            " DistributedDataParallel with a DistributedSampler; or use one GPU, without DataParallel",
            evidence=[start.where] if start is not None else [],
            cases=[
                case_of_node(module, wrap.node),
                *([case_of_node(module, visible)] if visible is not None else []),
            ],
        )

    def _gpu_count_of_data_parallel(
        self,
        wrap: Call,
        visible: ast.Assign | ast.Call | None,
        start: SingleProcessStart | None,
    ) -> int:
        """The number of GPUs that DataParallel uses: those of `device_ids`, those that the script makes visible, or
        those that the command does; 0 where it is not known."""
        named = wrap.argument(1, "device_ids")
        gpus = _count_items(self.subject, named) if named is not None else 0
        if not gpus and visible is not None:
            gpus = _number_of_visible_gpus(self.subject, visible)
        if not gpus and named is None and start is not None:
            gpus = start.gpus
        return gpus

    def _findings_on_trainer(
        self, visible: ast.Assign | ast.Call | None, starts: list[SingleProcessStart]
    ) -> Iterator[Finding]:
        """Findings on a trainer that one process runs with several GPUs, so that it copies the
        model to each of them.
        """
        module = self.subject
        trainer = next(module.calls(*TRAINERS), None)
        start = next((start for start in starts if not start.launcher), None)
        is_single_process = visible is not None or start is not None
        if trainer is None or not is_single_process or _is_placement_unclear(module):
            return
        command_file = start.text if start is not None else ""
        may_be_copied = not _trl_splits_too_large_model(module, trainer, command_file)
        if may_be_copied and not any(commands_that_launch(Path(module.path))):
            yield self._finding_on_trainer(trainer, visible, start)

    def _findings_on_spread_model(
        self, load: Call, visible: ast.Assign | ast.Call | None, starts: list[SingleProcessStart]
    ) -> Iterator[Finding]:
        """Findings on a model that is trained with its layers on several GPUs, which one process
        uses in turn.
        """
        module = self.subject
        start = next(iter(starts), None)
        if visible is None and start is None:
            return
        launches = commands_that_launch(Path(module.path))
        # A launcher that starts one process leaves the others idle as well.
        if any(ONE_PROCESS.search(launch) is None for launch in launches):
            return
        command_file = start.text if start is not None else ""
        fits = may_fit_one_gpu(module, billions_of_parameters_of_model(module, load), command_file)
        gpus = (
            start.gpus
            if start is not None
            else _number_of_visible_gpus(module, visible)
            if visible
            else 0
        )
        name = Path(module.path).name
        yield self.finding(
            f"one process sees {gpus} GPUs, and device_map spreads the layers over them: the GPUs work one after"
            " another, no faster than one",
            f"remove device_map and start one process per GPU, with `torchrun --nproc-per-node {gpus} {name}`; a model"
            " that does not fit on one GPU is sharded by FSDP instead (`accelerate launch --use_fsdp`)",
            # A model that may be too large for one GPU is spread on purpose: the GPUs wait all the same.
            severity="warning" if fits else "info",
            evidence=[start.where] if start is not None else [],
            cases=[
                case_of_node(module, load.node),
                *([case_of_node(module, visible)] if visible is not None else []),
            ],
        )

    def _finding_on_trainer(
        self, trainer: Call, visible: ast.Assign | ast.Call | None, start: SingleProcessStart | None
    ) -> Finding:
        """The finding on a trainer that one process runs with several GPUs."""
        module = self.subject
        gpus = (
            start.gpus
            if start is not None
            else _number_of_visible_gpus(module, visible)
            if visible
            else 0
        )
        cases = [
            case_of_node(module, trainer.node),
            *([case_of_node(module, visible)] if visible is not None else []),
        ]
        return self.finding(
            f"one process sees {gpus} GPUs: {_effect_of_several_gpus(module, trainer)}",
            f"start it with `torchrun --nproc-per-node {gpus}`, or let it use one GPU with {VARIABLE}=0",
            evidence=[start.where] if start is not None else [],
            cases=cases,
        )


def _load_spread_by_settings(module: Module, starts: list[SingleProcessStart]) -> Call | None:
    """A load that takes what it is given from settings (`from_pretrained(**cfg["model"])`), where the file that the
    command names spreads the model."""
    loads = [
        call
        for call in module.calls("transformers.*.from_pretrained")
        if call.open
        and "device_map" not in call.keywords
        and "model" in module.flow.types(call.node)
    ]
    words = [word for start in starts for word in start.where.split()]
    folder = Path(module.path).parent
    for word in words if loads else ():
        if word.endswith((".yaml", ".yml", ".json")) and _spreads_a_model(
            read_document_in_folder_or_parents(folder, word.rpartition("=")[2])
        ):
            return loads[0]
    return None


def _spreads_a_model(document: LocatedDocument | None) -> bool:
    """Does a file of settings, or a group of it, set a device map that spreads a model and limit no memory?"""
    value = document.value if document is not None else None
    groups = [value, *value.values()] if isinstance(value, Mapping) else []
    return any(
        isinstance(group, Mapping)
        and group.get("device_map") in SPREADING_DEVICE_MAPS
        and "max_memory" not in group
        for group in groups
    )


def _trainer_gets_model_name(module: Module, trainer: Call) -> bool:
    """Is the trainer given the name of a model? Recent releases of TRL then spread it over the GPUs."""
    return trainer.named("trl.*Trainer") and isinstance(
        module.flow.value(trainer.argument(0, "model")), str
    )


def _effect_of_several_gpus(module: Module, trainer: Call) -> str:
    """What a trainer does with several GPUs, in words."""
    if _trainer_gets_model_name(module, trainer):
        return (
            "TRL spreads a model that it loads by name over them (device_map), so they work one after another;"
            " older releases wrap it in DataParallel"
        )
    return "the Trainer wraps the model in DataParallel, which gathers all outputs on the first GPU"


def _is_placement_unclear(module: Module) -> bool:
    """Is the model spread over the GPUs, kept off them, or is it not known where it goes?"""
    for call in module.all_calls:
        if "device_map" in call.keywords:
            value = module.flow.value(call.keywords["device_map"])
            if value is UNKNOWN or value in SPREADING_DEVICE_MAPS:
                return True
    return module.mentions("use_cpu=True", "no_cuda=True", "place_model_on_device")


def _unconditional_visible_devices(module: Module) -> ast.Assign | ast.Call | None:
    """The statement that sets CUDA_VISIBLE_DEVICES under no condition; None without one."""
    nodes: list[ast.Assign | ast.Call] = [*module.nodes(ast.Assign), *module.nodes(ast.Call)]
    for node in nodes:
        # Under a condition it may be another number in another run.
        if _number_of_visible_gpus(module, node) > 1 and not any(
            isinstance(around, ast.If) for around in module.parents(node)
        ):
            return node
    return None


def _number_of_visible_gpus(module: Module, visible: ast.Assign | ast.Call) -> int:
    """How many GPUs a statement sets the variable to; 0 where it sets another, or the number is not known."""
    value = _visible_devices(module, visible)
    if value is None:
        return 0
    devices = module.flow.value(value)
    if isinstance(devices, str):
        return len(devices.split(",")) if devices.strip() else 0
    origins = module.flow.origins(value)
    return _count_items_joined_by_comma(module, origins[0].node) if len(origins) == 1 else 0


def _visible_devices(module: Module, node: ast.Assign | ast.Call) -> ast.expr | None:
    """The value that a statement sets CUDA_VISIBLE_DEVICES to: of an assignment, or of `update` and
    `setdefault`.
    """
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        is_variable = isinstance(target, ast.Subscript) and VARIABLE in ast.unparse(target.slice)
        return node.value if is_variable else None
    call = module.flow.call(node)
    if call.named("os.environ.setdefault", "os.putenv"):
        name = call.argument(0, "key")
        return call.argument(1, "value") if module.flow.value(name) == VARIABLE else None
    if not call.named("os.environ.update"):
        return None
    entries = module.flow.dict_entries_and_if_complete(call.args[0])[0] if call.args else {}
    return call.keywords.get(VARIABLE, entries.get(VARIABLE))


def _count_items_joined_by_comma(module: Module, node: ast.AST) -> int:
    """How many items `",".join(map(str, GPUS))`, or one with a comprehension over them, joins; 0 for anything else."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return 0
    if node.func.attr != "join" or module.flow.value(node.func.value) != ",":
        return 0
    items = node.args[0]
    if isinstance(items, ast.GeneratorExp | ast.ListComp):
        only_one = len(items.generators) == 1 and not items.generators[0].ifs
        return _count_items(module, items.generators[0].iter) if only_one else 0
    if (
        isinstance(items, ast.Call)
        and module.flow.name(items.func) == "map"
        and len(items.args) == 2
    ):
        return _count_items(module, items.args[1])
    return _count_items(module, items)


def _count_items(module: Module, node: ast.expr) -> int:
    """How many items a list or `range(n)` has; 0 where that is not known."""
    if isinstance(node, ast.Call) and module.flow.name(node.func) == "range":
        limits = [module.flow.value(argument) for argument in node.args]
        return len(range(*limits)) if all(type(limit) is int for limit in limits) else 0
    value = module.flow.value(node)
    return len(value) if isinstance(value, list | tuple) else 0


def _trl_splits_too_large_model(module: Module, trainer: Call, command_file: str) -> bool:
    """Does TRL load a model that is too large for one of the GPUs? It is then split over them, and not copied."""
    if not _trainer_gets_model_name(module, trainer):
        return False
    billions = billions_of_parameters_in_name(module, trainer.argument(0, "model"))
    return not may_fit_one_gpu(module, billions, command_file)
