"""Finds loops that run as several processes whose gradients nothing averages, by a symbolic run of
the script.

How it works: a run that joins a process group is read as a whole. Each of its collective calls is
followed back to what it exchanges; gradients and weights count as averaged, whatever is done with
them. A function of `torch.distributed` or of a library that may average by itself, and is not known
here, ends the search.

The trade-off: gradients that a function exchanges which gets them as an argument that nobody gives
are not seen as exchanged or not; such a run is not judged.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from truetune.checks.source.evidence.optimizers_before_adapters import LOADS, models_of_parameters
from truetune.settings.stacks.find_who_reads_config_or_starts_script import (
    commands_that_launch_several_processes,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Instance,
    Parameter,
    Result,
    Unknown,
    Value,
    parts_of_value,
)

JOINS = "torch.distributed.init_process_group"
SAMPLER = "torch.utils.data.*DistributedSampler"
BOOKKEEPING = frozenset(
    (
        "init_process_group",
        "destroy_process_group",
        "new_group",
        "get_rank",
        "get_world_size",
        "get_backend",
        "get_node_local_rank",
        "is_initialized",
        "is_available",
        "is_nccl_available",
        "is_torchelastic_launched",
        "barrier",
        "monitored_barrier",
        "broadcast_object_list",
        "all_gather_object",
        "gather_object",
        "scatter_object_list",
    )
)
"""Functions of `torch.distributed` that exchange no tensor, or a few numbers between steps"""
COLLECTIVES = frozenset(
    ("all_reduce", "reduce", "broadcast", "all_gather", "gather", "all_gather_into_tensor")
)
"""Functions whose argument says what is exchanged"""
AVERAGING_LIBRARIES = (
    "accelerate.*",
    "deepspeed.*",
    "lightning.*",
    "pytorch_lightning.*",
    "ray.*",
    "horovod.*",
    "megatron.*",
    "torchtitan.*",
    "torchtune.*",
    "colossalai.*",
    "fairscale.*",
    "torch_xla.*",
    "torch.nn.*DataParallel",
    "transformers.*Trainer",
    "trl.*",
)
"""Calls of libraries that average gradients themselves, or steer the processes"""
HOOKS = ("register_hook", "register_post_accumulate_grad_hook", "register_comm_hook")
WEIGHT_METHODS = frozenset(("parameters", "named_parameters", "state_dict", "buffers"))
MAX_VALUES = 400
"""Values that are followed from what a call exchanges: a mean of a loss is made of about ten"""


@dataclass(frozen=True, slots=True)
class UnaveragedPass:
    """A backward pass whose gradients stay in their process."""

    backward: CallEvent
    step: CallEvent
    """The optimizer's step behind it"""


def unaveraged_passes(module: Module) -> Iterator[UnaveragedPass]:
    """The backward passes of a file whose gradients no process gets from another, each once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        if not _is_data_parallel_run(trace) or not trace.is_whole or _may_average_gradients(trace):
            continue
        step = next(
            (call for call in trace.methods("step") if _is_optimizer_step_over_known_model(call)),
            None,
        )
        if step is None:
            continue
        for backward in trace.methods("backward"):
            if backward.home.path == module.path and backward.node not in seen:
                seen.add(backward.node)
                yield UnaveragedPass(backward, step)


def _is_data_parallel_run(trace: Trace) -> bool:
    """Does a run join a process group, and is it data-parallel by its sampler or by the command
    that starts it?
    """
    if next(trace.calls(JOINS), None) is None:
        return False
    if next(trace.calls(SAMPLER), None) is not None:
        return True
    return next(commands_that_launch_several_processes(Path(trace.entry.path)), None) is not None


def _is_optimizer_step_over_known_model(step: CallEvent) -> bool:
    """Is it the step of an optimizer of PyTorch, or of a scaler that is given one, over a model
    that is known?
    """
    for one in (step.receiver, *step.args[:1]):
        if isinstance(one, Result) and one.call.named("torch.optim.*", "bitsandbytes.optim.*"):
            params_argument = one.call.argument(0, "params")
            models = None if params_argument is None else models_of_parameters(params_argument)
            return bool(models) and all(map(_is_unwrapped_known_model, models or ()))
    return False


def _is_unwrapped_known_model(model: Value) -> bool:
    """Is a model loaded or made in sight, and not by a function of others, which may wrap it?"""
    for way in lineages_back_to_origins(model):
        load = way.call_that_gave_origin
        is_loaded = load is not None and load.named(*LOADS)
        if not is_loaded and not isinstance(way.origin, Instance):
            return False
    return True


def _may_average_gradients(trace: Trace) -> bool:
    """May anything in a run average gradients, or keep the weights of all processes alike in
    another way?
    """
    for call in trace.all_calls:
        if call.named(*AVERAGING_LIBRARIES) or call.method in HOOKS:
            return True
        # A plan or a mesh shares one model out: its layers exchange activations, and no gradients.
        if {"tp_plan", "device_mesh", "mesh"} & call.keywords.keys():
            return True
        name = next((one for one in call.names if one.startswith("torch.distributed.")), None)
        if name is not None and _call_may_exchange_weights(name.rpartition(".")[2], call):
            return True
    return False


def _call_may_exchange_weights(function: str, call: CallEvent) -> bool:
    """May a call of `torch.distributed` exchange gradients or weights?"""
    if function in BOOKKEEPING:
        return False
    if function not in COLLECTIVES:
        # `ReduceOp` and the like are no calls; what is left shards, sends or wraps.
        return True
    return any(_may_be_made_of_weights(argument) for argument in call.args[:2]) or call.is_open


def _may_be_made_of_weights(value: Value) -> bool:
    """Is a value made of gradients or weights, or of what is not known?"""
    waiting = [value]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if len(seen) > MAX_VALUES or _may_be_gradient_or_weights(one):
            return True
        if not _is_model_output_or_batch(one):
            waiting.extend(parts_of_value(one))
    return False


def _is_model_output_or_batch(value: Value) -> bool:
    """Is it what a model or a loader gives? A forward pass is made of weights, and gives none."""
    if not isinstance(value, Result):
        return False
    return value.call.method in ("__call__", "forward") or value.call.named("*.DataLoader")


def _may_be_gradient_or_weights(value: Value) -> bool:
    """Is it a gradient, or weights, or may it be?"""
    if isinstance(value, Attribute) and value.name in ("grad", "data"):
        return True
    if isinstance(value, Result) and value.call.method in WEIGHT_METHODS:
        return True
    return isinstance(value, Parameter | Unknown)
