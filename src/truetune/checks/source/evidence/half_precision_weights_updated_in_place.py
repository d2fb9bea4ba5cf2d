"""Finds weights of 16 bits that an optimizer updates in place, without a float32 copy, in the
symbolic run of a script.

How it works: the parameters of an optimizer are followed to their model, and the model to its load
and to every cast before. The last cast that is sure decides. Lightning's "true" precisions cast
what its module holds.

The trade-off: behind a function that is not known and gets the model, and where weights are cast
one by one, nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.checks.source.evidence.does_script_train_sharded_weights import (
    may_keep_float32_weights,
)
from truetune.checks.source.evidence.may_weights_have_float32_copy import (
    BFLOAT16,
    FLOAT16,
    WIDE,
    may_keep_float32_copies,
)
from truetune.checks.source.evidence.model_devices_at_use import (
    LEAVES_IN_PLACE,
    LOADS,
    UNDECIDED,
    device_and_option_of,
    holds_model,
    may_be_model_or_its_weights,
)
from truetune.checks.source.evidence.optimizers_before_adapters import (
    ADAPTER_WRAPPERS,
    models_of_parameters,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import (
    CallEvent,
    Event,
    Trace,
    is_constant_none,
)
from truetune.source.symbolic_execution.values_of_run import (
    Instance,
    Library,
    Result,
    Value,
    options_of_choice,
)

CASTS = {"half": "float16", "bfloat16": "bfloat16", "float": "float32", "double": "float32"}
"""Method of a model -> the dtype that it casts to"""
DTYPE_ARGUMENTS = ("dtype", "torch_dtype")
KEEPS_DTYPE = (*LEAVES_IN_PLACE, "torch.nn.DataParallel", "torch.nn.parallel.*")
KEEPING_METHODS = ("prepare", "prepare_model", "setup", "setup_module", "fit", "append")
LIGHTNING_TRAINERS = ("lightning.*Trainer", "pytorch_lightning.*Trainer")
TRUE_PRECISIONS = {"16-true": "float16", "bf16-true": "bfloat16"}
"""Precision of Lightning -> the dtype that it casts the weights to"""
TRAINERS = ("transformers.*Trainer", "trl.*Trainer")
SHARDING_ARGUMENTS = ("deepspeed", "fsdp", "fsdp_config", "optim", "optim_target_modules")
"""Arguments of a Trainer behind which other code may keep the weights, or update them"""
UNKNOWN = "unknown"


class NarrowWeights(NamedTuple):
    """Weights of 16 bits that are updated in place."""

    optimizer: CallEvent
    """Also the construction of a Trainer, which makes one"""
    cause: Event
    """The load or cast that gives the dtype"""


def optimizers_of_weights_in_dtype(
    module: Module, dtype: str, *optimizers: str
) -> Iterator[NarrowWeights]:
    """The optimizers of a file that update weights of this dtype, each once.

    Args:
        module: A file that is judged.
        dtype: `float16` or `bfloat16`.
        optimizers: Their qualified names.
    """
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for optimizer in trace.calls(*optimizers):
            if optimizer.home.path != module.path or optimizer.node in seen:
                continue
            cause = _cause_of_optimizer_dtype(trace, optimizer, dtype)
            if cause is not None and not _may_keep_float32_copies(module):
                seen.add(optimizer.node)
                yield NarrowWeights(optimizer, cause)


def trainers_of_weights_in_dtype(module: Module, dtype: str) -> Iterator[NarrowWeights]:
    """The Trainers of a file that train all weights of a model of this dtype, each once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for trainer in trace.calls(*TRAINERS):
            model = trainer.argument(0, "model")
            if trainer.home.path != module.path or trainer.node in seen or model is None:
                continue
            cause = (
                None
                if _may_train_adapter_or_use_own_optimizer(trainer)
                else _common_cause_of_model_dtype(trace, model, trainer, dtype)
            )
            if cause is not None and not _may_keep_float32_copies(module):
                seen.add(trainer.node)
                yield NarrowWeights(trainer, cause)


def _may_keep_float32_copies(module: Module) -> bool:
    """May the weights have a float32 copy, by the code, or by how the run is launched?"""
    return may_keep_float32_copies(module) or may_keep_float32_weights(Path(module.path))


def trainer_settings(trainer: CallEvent) -> dict[str, Value]:
    """The arguments of the settings that a Trainer is given; {} where they are not seen."""
    args = trainer.keywords.get("args") or trainer.argument(1, "args")
    return args.call.keywords if isinstance(args, Result) else {}


def _may_train_adapter_or_use_own_optimizer(trainer: CallEvent) -> bool:
    """May a Trainer train an adapter, or step by an optimizer of its own kind?"""
    if trainer.is_open or "**" in trainer.keywords:
        return True
    given = (trainer.keywords.get(name) for name in ("peft_config", "optimizers"))
    if any(one is not None and not is_constant_none(one) for one in given):
        return True
    args = trainer.keywords.get("args") or trainer.argument(1, "args")
    if not isinstance(args, Result) or args.call.is_open:
        return True
    return any(name in args.call.keywords for name in SHARDING_ARGUMENTS)


def _cause_of_optimizer_dtype(trace: Trace, optimizer: CallEvent, dtype: str) -> Event | None:
    """What gives the weights of an optimizer this dtype; None where they may have another."""
    params_argument = optimizer.argument(0, "params")
    models = None if params_argument is None else models_of_parameters(params_argument)
    if not models:
        return None
    causes = [_common_cause_of_model_dtype(trace, model, optimizer, dtype) for model in models]
    return causes[0] if all(causes) else None


def _common_cause_of_model_dtype(
    trace: Trace, model: Value, use: CallEvent, dtype: str
) -> Event | None:
    """What gives the weights of a model this dtype, whichever load it comes from."""
    loads = _adapterless_loads_of_model(trace, model)
    causes = [_dtype_and_cause_before(trace, load, model, use) for load in loads or ()]
    if causes and all(dtype_of_cause == dtype for dtype_of_cause, _ in causes):
        return causes[0][1]
    return None


def _adapterless_loads_of_model(trace: Trace, model: Value) -> list[CallEvent] | None:
    """The loads that a model comes from; None where one is not known, or an adapter lies over it."""
    if isinstance(model, Instance):
        return [load for load in trace.calls(*LOADS) if _holds_model_without_adapter(model, load)]
    loads: list[CallEvent] = []
    for way in lineages_back_to_origins(model):
        load = way.call_that_gave_origin
        if load is None or not load.named(*LOADS) or way.has_step(*ADAPTER_WRAPPERS):
            return None
        loads.append(load)
    return loads


def _holds_model_without_adapter(model: Instance, load: CallEvent) -> bool:
    """Does an object hold the model of a load, with no adapter over it?"""
    ways = [
        way
        for part in model.attributes.values()
        if isinstance(part, Result)
        for way in lineages_back_to_origins(part)
        if way.call_that_gave_origin is load
    ]
    return bool(ways) and not any(way.has_step(*ADAPTER_WRAPPERS) for way in ways)


def _dtype_and_cause_before(
    trace: Trace, load: CallEvent, model: Value, use: CallEvent
) -> tuple[str, Event]:
    """The dtype of a model when an event begins, and what gives it."""
    if isinstance(model, Instance):
        for trainer in trace.calls(*LIGHTNING_TRAINERS):
            precision = constant_of(trainer.keywords.get("precision"), with_defaults=False)
            if precision in TRUE_PRECISIONS:
                return TRUE_PRECISIONS[precision], trainer
    arms = {(id(frame.node), frame.taken) for frame in use.frames(*UNDECIDED)}
    for call in reversed(trace.all_calls):
        if not load.number < call.number < use.number:
            continue
        dtype = _dtype_given_by_call(call, load)
        if dtype == "":
            continue
        if any((id(frame.node), frame.taken) not in arms for frame in call.frames(*UNDECIDED)):
            return UNKNOWN, call
        return dtype, call
    return _dtype_of_load(load), load


def _dtype_given_by_call(call: CallEvent, load: CallEvent) -> str:
    """The dtype that a call gives the weights; "" where it leaves them as they are."""
    if call.method in CASTS or call.method == "to":
        return _dtype_given_by_cast(call, load)
    if call.named(*ADAPTER_WRAPPERS) and holds_model(call.argument(0, "model"), load):
        return UNKNOWN  # the base is changed in place, and its weights are frozen
    if call.named(*KEEPS_DTYPE) or call.method in KEEPING_METHODS or call is load:
        return ""
    arguments = (*call.args, *call.keywords.values())
    return UNKNOWN if any(holds_model(one, load) for one in arguments) else ""


def _dtype_given_by_cast(call: CallEvent, load: CallEvent) -> str:
    """The dtype that `.half()`, `.to(...)` or the like gives the weights; "" for other objects."""
    if holds_model(call.receiver, load):
        return CASTS[call.method] if call.method in CASTS else _dtype_of_move(call)
    return UNKNOWN if may_be_model_or_its_weights(call.receiver, load) else ""


def _dtype_of_move(call: CallEvent) -> str:
    """The dtype that `.to(...)` casts to; "" where it names a device alone."""
    if call.is_open:
        return UNKNOWN
    named = call.keywords.get("dtype")
    for argument in (*call.args, *(() if named is None else (named,))):
        dtype = _dtype_name(argument)
        if dtype != UNKNOWN:
            return dtype
        if device_and_option_of(argument)[0] in ("", UNKNOWN):
            return UNKNOWN if argument is named or device_and_option_of(argument)[0] == "" else ""
    return ""


def _dtype_of_load(load: CallEvent) -> str:
    """The dtype that a load gives the weights."""
    if load.is_open or "quantization_config" in load.keywords:
        return UNKNOWN
    given = next((load.keywords[name] for name in DTYPE_ARGUMENTS if name in load.keywords), None)
    return UNKNOWN if given is None else _dtype_name(given)


def _dtype_name(value: Value) -> str:
    """The name of the dtype that a value is, `float16`, `bfloat16` or `float32`, whichever of its
    options counts; else unknown.
    """
    names = {
        one.name if isinstance(one, Library) else str(constant_of(one))
        for one in options_of_choice(value)
    }
    for dtype, spellings in (
        ("float16", FLOAT16.names),
        ("bfloat16", BFLOAT16.names),
        ("float32", WIDE),
    ):
        if names <= spellings:
            return dtype
    return UNKNOWN
