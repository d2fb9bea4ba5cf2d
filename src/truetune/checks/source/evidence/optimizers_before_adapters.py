"""Finds optimizers that are made before the model gets its adapter, so that they hold the base's
weights, by a symbolic run.

The trade-off: parameters that are followed to no model, models of more than one origin, and
optimizers that a function that is not known gets before the adapter is put on, are not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import Lineage, lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import (
    CallEvent,
    Event,
    Trace,
    is_constant_none,
)
from truetune.source.symbolic_execution.values_of_run import (
    Choice,
    Element,
    Item,
    Library,
    Mapping,
    Operation,
    Option,
    Result,
    Sequence,
    Unknown,
    Value,
)

OPTIMIZER_CLASSES = ("torch.optim.*", "bitsandbytes.optim.*", "transformers.Adafactor")
NO_OPTIMIZERS = (
    "torch.optim.lr_scheduler.*",
    "torch.optim.swa_utils.*",
    "bitsandbytes.optim.GlobalOptimManager*",
)
ADAPTER_WRAPPERS = (
    "peft.get_peft_model",
    "peft.PeftModel*.from_pretrained",
    "peft.inject_adapter_in_model",
    "unsloth.Fast*Model.get_peft_model",
)
LOADS = ("*.from_pretrained", "*.from_config")
TRAINERS = ("trl.*Trainer", "transformers.*Trainer")
SCHEDULERS = ("torch.optim.lr_scheduler.*", "transformers.get_*")
"""Functions that get an optimizer and step none"""
PASSES_PARAMETERS_ON = ("filter", "list", "tuple", "iter", "itertools.chain")
MODULES = ("modules", "named_modules")
"""Methods that give the modules of a model"""
MAX_DEPTH = 12
"""Containers around parameters: groups, lists and filters of them are about five"""


@dataclass(frozen=True, slots=True)
class OptimizerBeforeAdapter:
    """An optimizer over a model that gets its adapter later."""

    optimizer: CallEvent
    wrapper: CallEvent
    """What puts the adapter on: `get_peft_model`, or a trainer that is given `peft_config`"""


def optimizers_before_adapters(module: Module) -> Iterator[OptimizerBeforeAdapter]:
    """The optimizers of a file that hold a base's weights, and train while its adapter is on.

    Args:
        module: A file that is judged.

    Yields:
        Each optimizer that the file makes, once, with what puts the adapter on behind it.
    """
    seen = set()
    for trace in traces_of_scripts_that_reach_file(module):
        if any(trace.methods("add_param_group")):
            continue
        for optimizer in made_optimizers(trace):
            if optimizer.home.path != module.path or optimizer.node in seen:
                continue
            wrapper = _later_adapter_of_model(trace, optimizer)
            if wrapper is not None:
                seen.add(optimizer.node)
                yield OptimizerBeforeAdapter(optimizer, wrapper)


def models_of_parameters(value: Value, depth: int = 0) -> list[Value] | None:
    """The models whose parameters a value holds: a list, groups or a filter of them; None where one
    is not known.
    """
    if isinstance(value, Result) and value.call.method in ("parameters", "named_parameters"):
        return None if value.call.receiver is None else [_model_owning_module(value.call.receiver)]
    parts = _holders_of_parameters(value)
    if not parts or depth > MAX_DEPTH:
        return None
    values: list[Value] = []
    for part in parts:
        inner = models_of_parameters(part, depth + 1)
        if inner is None:
            return None
        values.extend(one for one in inner if one not in values)
    return values


def _model_owning_module(value: Value) -> Value:
    """The model that a module is one of: `for name, module in model.named_modules()`."""
    inner = value
    while isinstance(inner, Item | Element):
        inner = inner.base if isinstance(inner, Item) else inner.iterable
    if isinstance(inner, Result) and inner.call.method in MODULES:
        return value if inner.call.receiver is None else inner.call.receiver
    return value


def _holders_of_parameters(value: Value) -> tuple[Value, ...]:
    """What holds the parameters that a container has; nothing where that is not known."""
    if isinstance(value, Choice):
        return value.options
    if isinstance(value, Sequence):
        return tuple(value.items)
    if isinstance(value, Mapping):
        return (value.entries["params"],) if "params" in value.entries else ()
    if isinstance(value, Element):
        return (value.iterable,)
    if isinstance(value, Item):
        return (value.base,)
    if isinstance(value, Operation) and value.operator == "+":
        return value.operands
    if isinstance(value, Result) and value.call.named(*PASSES_PARAMETERS_ON):
        return value.call.args[1:] if value.call.named("filter") else value.call.args
    return ()


def single_model_lineage(value: Value | None) -> Lineage | None:
    """The way back of a model to the call that loaded it; None where there are several, or it ends
    elsewhere.
    """
    ways = [] if value is None else list(lineages_back_to_origins(value))
    if (
        len(ways) != 1
        or ways[0].call_that_gave_origin is None
        or not ways[0].call_that_gave_origin.named(*LOADS)
    ):
        return None
    return ways[0]


def made_optimizers(trace: Trace) -> Iterator[CallEvent]:
    """The optimizers that a run makes: those of known classes, and what holds a model's parameters
    and steps.
    """
    stepped = {
        id(way.origin)
        for call in trace.methods("step")
        if call.receiver is not None
        for way in lineages_back_to_origins(call.receiver)
    }
    for call in trace.all_calls:
        if call.is_in_later_loop_pass or call.named(*NO_OPTIMIZERS):
            continue
        if call.named(*OPTIMIZER_CLASSES) or (
            id(call.result) in stepped and call.method is None and _is_given_model_parameters(call)
        ):
            yield call


def _is_given_model_parameters(call: CallEvent) -> bool:
    """Is its first argument made of a model's parameters, as that of every optimizer is?"""
    params_argument = call.argument(0, "params")
    return params_argument is not None and bool(models_of_parameters(params_argument))


def _later_adapter_of_model(trace: Trace, optimizer: CallEvent) -> CallEvent | None:
    """What puts an adapter on the model of an optimizer that was made before; None where nothing
    surely does.
    """
    held = _adapterless_model_of(optimizer)
    if held is None:
        return None
    for wrapper, model in _later_adapters(trace, optimizer):
        wrapped = single_model_lineage(model)
        if wrapped is None or wrapped.origin is not held.origin:
            continue
        # One adapter is laid over another: which of them is trained is another question.
        if wrapped.has_step(*ADAPTER_WRAPPERS):
            return None
        if are_in_exclusive_branches(optimizer, wrapper) or _is_optimizer_made_after(
            trace, wrapper
        ):
            return None
        if _may_train_before_adapter(trace, optimizer, wrapper):
            return None
        return wrapper if _does_optimizer_step_with_adapter_on(trace, optimizer, wrapper) else None
    return None


def _is_optimizer_made_after(trace: Trace, wrapper: CallEvent) -> bool:
    """Is an optimizer made after the adapter is put on, which may hold its weights?"""
    return any(optimizer.number > wrapper.number for optimizer in made_optimizers(trace))


def _adapterless_model_of(optimizer: CallEvent) -> Lineage | None:
    """The one model whose parameters an optimizer is given, if it has no adapter yet; else None."""
    params_argument = optimizer.argument(0, "params")
    models = None if params_argument is None else models_of_parameters(params_argument)
    if models is None or len(models) != 1:
        return None
    held = single_model_lineage(models[0])
    if held is None or held.has_step(*ADAPTER_WRAPPERS) or _loads_adapter(held):
        return None
    return held


def _loads_adapter(lineage: Lineage) -> bool:
    """Is what was loaded an adapter already (`AutoPeftModelForCausalLM`, Unsloth's classes load
    both)?
    """
    return lineage.call_that_gave_origin is not None and lineage.call_that_gave_origin.named(
        "peft.*", "unsloth.*"
    )


def _later_adapters(trace: Trace, optimizer: CallEvent) -> Iterator[tuple[CallEvent, Value | None]]:
    """The calls behind an optimizer that put an adapter on a model, and the model."""
    for call in trace.all_calls:
        if call.number < optimizer.number or call.is_in_later_loop_pass:
            continue
        if call.named("peft.inject_adapter_in_model"):
            yield call, call.argument(1, "model")
        elif call.named(*ADAPTER_WRAPPERS):
            yield call, call.argument(0, "model")
        elif call.method == "add_adapter":
            yield call, call.receiver
        elif call.named(*TRAINERS) and _is_certainly_given(call.argument(-1, "peft_config")):
            if _optimizer_given_to_trainer(call) is optimizer.result:
                yield call, call.argument(0, "model")


def _is_certainly_given(value: Value | None) -> bool:
    """Is an argument given, and no option of it None?"""
    if value is None or isinstance(value, Option | Unknown) or is_constant_none(value):
        return False
    if isinstance(value, Choice):
        return all(map(_is_certainly_given, value.options))
    return isinstance(value, Result | Library)


def _optimizer_given_to_trainer(trainer: CallEvent) -> Value | None:
    """The optimizer that a trainer is given: `optimizers=(optimizer, scheduler)`; None otherwise."""
    optimizers_argument = trainer.argument(-1, "optimizers")
    return (
        optimizers_argument.items[0]
        if isinstance(optimizers_argument, Sequence) and optimizers_argument.items
        else None
    )


def are_in_exclusive_branches(one: Event, other: Event) -> bool:
    """Do two events stand in two arms of one branch, of which a run takes one?"""
    arms = {(id(frame.node), frame.taken) for frame in one.frames("branch")}
    return any((id(frame.node), not frame.taken) in arms for frame in other.frames("branch"))


def _may_train_before_adapter(trace: Trace, optimizer: CallEvent, wrapper: CallEvent) -> bool:
    """May the optimizer train between its construction and the adapter: by a step, or in a function
    not known here?
    """
    for call in trace.all_calls:
        if not optimizer.number < call.number < wrapper.number:
            continue
        if call.method == "backward" or call.named("*.backward"):
            return True
        is_known = call.named(*SCHEDULERS) or call.method in ("prepare", "zero_grad", "state_dict")
        if optimizer.result in call.inputs and not is_known:
            return True
    return False


def _does_optimizer_step_with_adapter_on(
    trace: Trace, optimizer: CallEvent, wrapper: CallEvent
) -> bool:
    """Does this optimizer step when the adapter is on: in a loop, or in the trainer that it is
    given to?
    """
    if _optimizer_given_to_trainer(wrapper) is optimizer.result:
        return any(call.receiver is wrapper.result for call in trace.methods("train"))
    return does_optimizer_step_after_event(trace, optimizer, wrapper)


def does_optimizer_step_after_event(trace: Trace, optimizer: CallEvent, event: Event) -> bool:
    """Does an optimizer step behind an event: in a loop, or in the trainer that it is given to?"""
    for call in trace.all_calls:
        if call.number < event.number:
            continue
        if call.method == "step" and call.receiver is not None:
            if any(
                way.origin is optimizer.result for way in lineages_back_to_origins(call.receiver)
            ):
                return True
        if call.named(*TRAINERS) and _optimizer_given_to_trainer(call) is optimizer.result:
            return True
    return False
