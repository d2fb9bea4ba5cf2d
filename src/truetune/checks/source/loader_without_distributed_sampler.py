"""Every process of a DistributedDataParallel loop goes through all rows.

## What it does
Looks for a `DataLoader` that a training loop of DistributedDataParallel, FSDP or a DeepSpeed engine reads, with neither
a sampler nor a batch sampler (`RandomSampler` does not split the rows, and counts as none), and with rows that are not
split by rank. In a loop of Accelerate it looks for a loader that is not given to `prepare`. It also reads loaders that
are made in another file, and loops that cut their batches out of all rows (`range(0, len(rows), batch)`). It is an
error if the script is known to run as several processes, else a warning. Not reported: a Trainer, accelerate, Lightning
or Ray that may add a sampler, a loader made under a condition, and calls with unknown arguments.

## Why it is bad
Gradients are averaged over processes (one per GPU) that train on the same rows: N GPUs make no more progress than one,
and an epoch has as many steps as on one GPU. With the same seed in all processes, or without shuffling, all take the
same batch at each step.

## Example
```python
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

torch.distributed.init_process_group("nccl")
model = DistributedDataParallel(model)
loader = DataLoader(rows, batch_size=4, shuffle=True)
for batch in loader:
    model(**batch).loss.backward()
```

## Use instead
```python
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

torch.distributed.init_process_group("nccl")
model = DistributedDataParallel(model)
loader = DataLoader(rows, batch_size=4, sampler=DistributedSampler(rows, shuffle=True))
for batch in loader:
    model(**batch).loss.backward()
```

## Fix safety
There is no automatic fix. Call `sampler.set_epoch(epoch)` in each epoch, or all epochs have the same order. The number
of steps shrinks by the number of processes: compute warm-up and schedule from the new `len(loader)`.

## References
- pytorch/pytorch `torch.utils.data.distributed.DistributedSampler`
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
from truetune.checks.source.evidence.cases_and_fixes_of_nodes import case_of_node
from truetune.checks.source.evidence.multi_process_loops import for_loops_of_linked_files
from truetune.checks.source.evidence.rows_divided_by_process import are_divided_by_process
from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    commands_that_launch_several_processes,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

DATA_LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
PROCESS_WRAPPERS = (
    "torch.*.DistributedDataParallel",
    "torch.*.FullyShardedDataParallel",
    "torch.*.fully_shard",
)
DIVIDING_CODE = re.compile(
    r"split_dataset_by_node|\.shard\(|\.prepare\(|Trainer\(|prepare_data_loader|IterableDataset|islice\(|[lL]ightning|"
    r"[fF]abric|ray\.train|device_mesh|deepspeed_io|streaming|rank\w*\s*::"
)
"""Signs that rows are divided among processes, or a sampler is put in, by something else; said of all files together"""
DEEPSPEED = "deepspeed.initialize"
WHOLE_SAMPLERS = ("torch.utils.data.*RandomSampler", "torch.utils.data.*SequentialSampler")
"""Samplers that go through all rows in each process"""
BY_RANK = re.compile(r"rank|world|shard|replica|node", re.I)
"""What in the making of a data set says that each process has rows of its own"""


DIVIDED_BY_HAND = re.compile(
    r"\[\s*\w*rank\w*|%\s*\w*(?:world|rank|num_proc|n_gpus)|rank\w*\s*\*|\*\s*\w*rank|chunk|np\.array_split"
    r"|(?:world\w*|rank\w*)\s*(?:,|\))\s*\)?\s*:|\(\s*\w*rank\w*\s*,\s*\w*world|scatter|broadcast|shard",
    re.I,
)
"""Signs that a script divides its rows by rank, by hand; said of all files together"""


def _loaders_of_multi_process_script(module: Module) -> Iterator[Call]:
    """Loaders in the code of a script that wraps its model for several processes."""
    if (
        _wraps_model_for_processes(module)
        or next(module.calls("accelerate.Accelerator"), None) is not None
    ):
        yield from module.calls(*DATA_LOADERS)


def _wraps_model_for_processes(module: Module) -> bool:
    """Does the script wrap its model for several processes, as PyTorch or DeepSpeed does?

    DeepSpeed divides the rows that `initialize` is given (`training_data`), and no loader of the script's own.
    """
    parts = module.self_and_files_run_together
    if any(True for part in parts for _ in part.calls(DEEPSPEED)):
        return True
    wraps = any(True for part in parts for _ in part.calls(*PROCESS_WRAPPERS))
    return wraps and not module.mentions("deepspeed")


class LoaderWithoutDistributedSampler(SourceRule):
    code = "SRC084"
    fault = Fault.ROWS_DIVIDED_WRONGLY_OVER_PROCESSES
    symptoms = ("several-gpus",)
    severity = "error"
    looks_at = CodePlaces(
        "loaders in scripts of several processes", _loaders_of_multi_process_script
    )

    def findings(self) -> Iterator[Finding]:
        module = self.subject
        yield from self._findings_on_unprepared_loaders()
        if not _wraps_model_for_processes(module):
            return
        if any(DIVIDING_CODE.search(part.text) for part in module.self_and_files_run_together):
            return
        yield from self._findings_on_manual_batches()
        for call in _loaders_of_multi_process_script(module):
            if (
                _may_have_own_sampler(module, call)
                or _is_made_conditionally(module, call)
                or _may_rows_be_divided_by_rank(module, call)
            ):
                continue
            if _is_read_by_training_loop(module, call):
                yield self.finding(
                    "every process trains on all rows, so more GPUs bring nothing: the loader has no"
                    " DistributedSampler",
                    "replace shuffle by sampler=DistributedSampler(rows, shuffle=True);"
                    " call sampler.set_epoch(epoch) in each epoch",
                    severity="error" if _runs_as_several_processes(module) else "warning",
                    cases=[case_of_node(module, call.node)],
                )

    def _findings_on_manual_batches(self) -> Iterator[Finding]:
        """Findings on loops over batches that the script cuts out of all its rows, without any
        loader.
        """
        module = self.subject
        if any(
            True for part in module.self_and_files_run_together for _ in part.calls(*DATA_LOADERS)
        ):
            return
        if any(DIVIDED_BY_HAND.search(part.text) for part in module.self_and_files_run_together):
            return
        for loop in _training_loops_stepping_through_rows(module):
            yield self.finding(
                "every process trains on all rows, so more GPUs bring nothing: the loop takes its batches from all"
                " of them",
                "split the rows first (rows = rows[rank::world_size]), or use a DataLoader"
                " with a DistributedSampler",
                severity="error" if _runs_as_several_processes(module) else "warning",
                cases=[case_of_node(module, loop.iter)],
            )

    def _findings_on_unprepared_loaders(self) -> Iterator[Finding]:
        """Findings on loaders of Accelerate's scripts that `prepare` is never given, where it is
        given other things.
        """
        module = self.subject
        prepared = _prepare_calls_if_all_arguments_known(module)
        if not prepared:
            return
        is_several = (
            next(commands_that_launch_several_processes(Path(module.path)), None) is not None
        )
        for call in module.calls(*DATA_LOADERS):
            if _is_never_prepared_or_divided(module, call, prepared) and _is_read_by_training_loop(
                module, call
            ):
                yield self.finding(
                    "every process trains on all rows, so more GPUs bring nothing: the loader is not given to"
                    " accelerator.prepare, which splits it",
                    "pass the loader to accelerator.prepare together with the model and the optimizer",
                    severity="error" if is_several else "warning",
                    cases=[case_of_node(module, call.node), case_of_node(module, prepared[0].node)],
                )


def _training_loops_stepping_through_rows(module: Module) -> Iterator[ast.For]:
    """The innermost loops with a backward pass that step through rows: `range(0, len(rows), 8)`, or a generator."""
    for loop in module.nodes(ast.For):
        inner = [part for one in loop.body for part in ast.walk(one)]
        has_backward = any(isinstance(n, ast.Attribute) and n.attr == "backward" for n in inner)
        if has_backward and not any(isinstance(part, ast.For) for part in inner):
            if _steps_through_rows(module, loop.iter):
                yield loop


def _steps_through_rows(module: Module, iterated: ast.expr) -> bool:
    """Does an iterated expression, or the generator that it calls, go through rows in steps of a batch?"""
    for part in ast.walk(iterated):
        if not isinstance(part, ast.Call):
            continue
        function = module.flow.function_that_expression_names(part.func)
        bodies: list[ast.AST] = [part]
        if isinstance(function, ast.FunctionDef) and _is_generator(function):
            bodies.append(function)
        if any(_is_range_in_steps(one) for body in bodies for one in ast.walk(body)):
            return True
    return False


def _is_generator(function: ast.FunctionDef) -> bool:
    """Is the function a generator?"""
    return any(isinstance(part, ast.Yield) for part in ast.walk(function))


def _is_range_in_steps(node: ast.AST) -> bool:
    """Is the node `range(0, len(rows), batch)`?"""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    is_range = node.func.id == "range" and len(node.args) == 3
    return is_range and "len(" in ast.unparse(node.args[1])


def _runs_as_several_processes(module: Module) -> bool:
    """Is the script made for several processes? DeepSpeed is used on a single GPU too."""
    parts = module.self_and_files_run_together
    if any(True for part in parts for _ in part.calls(*PROCESS_WRAPPERS)):
        return True
    return any(
        next(commands_that_launch_several_processes(Path(part.path)), None) is not None
        for part in parts
    )


def _prepare_calls_if_all_arguments_known(module: Module) -> list[Call]:
    """What Accelerate is given, call by call; none where a call gives it what is not seen."""
    if next(module.calls("accelerate.Accelerator"), None) is None:
        return []
    calls = [call for call in module.methods("prepare", "prepare_data_loader") if call.node.args]
    return [] if any(call.open for call in calls) else calls


def _is_never_prepared_or_divided(module: Module, loader: Call, prepared: list[Call]) -> bool:
    """Is the loader in none of these calls, and are its rows not divided by something else?"""
    given = (argument for call in prepared for argument in call.node.args)
    if any(_reads_from_loader(module, argument, loader) for argument in given):
        return False
    return not (
        _may_have_own_sampler(module, loader)
        or _may_rows_be_divided_by_rank(module, loader)
        or _is_made_conditionally(module, loader)
    )


def _may_have_own_sampler(module: Module, call: Call) -> bool:
    """Has a loader a sampler of its own, or may one be among arguments that are not known?"""
    given = (call.argument(3, "sampler"), call.argument(4, "batch_sampler"))
    samplers = [one for one in given if one is not None and module.flow.value(one) is not None]
    return call.open or any(not _is_single_process_sampler(module, sampler) for sampler in samplers)


def _is_single_process_sampler(module: Module, sampler: ast.expr) -> bool:
    """Is the sampler surely one of PyTorch's for a single process, made of nothing that names a
    rank?
    """
    maker = module.flow.producing_call(sampler)
    if maker is None or BY_RANK.search(ast.unparse(maker.node)):
        return False
    return maker.named(*WHOLE_SAMPLERS) and not maker.named("*Weighted*")


def _is_made_conditionally(module: Module, call: Call) -> bool:
    """Is the loader made under a condition, which may ask for the number of processes?"""
    tests = [
        node.test for node in module.parents(call.node) if isinstance(node, ast.If | ast.IfExp)
    ]
    return any("__name__" not in ast.unparse(test) for test in tests)


def _may_rows_be_divided_by_rank(module: Module, call: Call) -> bool:
    """Does the making of its rows speak of ranks, or is it not seen?"""
    rows = call.argument(0, "dataset")
    if rows is None:
        return True
    for origin in module.flow.origins(rows):
        node = origin.node
        owners = module.flow.origins(node.func) if isinstance(node, ast.Call) else ()
        classes = [
            owner.node for owner in owners if isinstance(owner.node, ast.ClassDef | ast.FunctionDef)
        ]
        if any(BY_RANK.search(module.text_of(part)) for part in (node, *classes)):
            return True
    return are_divided_by_process(module, rows)


def _is_read_by_training_loop(module: Module, call: Call) -> bool:
    """Does a loop that calls backward read this loader?"""
    for loop in for_loops_of_linked_files(module):
        steps = any(isinstance(n, ast.Attribute) and n.attr == "backward" for n in ast.walk(loop))
        if steps and any(_reads_from_loader(module, part, call) for part in ast.walk(loop.iter)):
            return True
    return False


def _reads_from_loader(module: Module, part: ast.AST, call: Call) -> bool:
    """Does a part of a loop read this loader?"""
    is_named = isinstance(part, ast.Name | ast.Attribute | ast.Call)
    return is_named and any(origin.node is call.node for origin in module.flow.origins(part))
