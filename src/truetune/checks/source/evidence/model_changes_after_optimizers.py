"""Finds changes to a model after its optimizer is made, which leave some weights that train out of
every step.

How it works: by a symbolic run. A module that is put in the place of another (`model.lm_head =
nn.Linear(...)`), and `resize_token_embeddings`, bring weights that the optimizer has never seen. So
do calls that make new parameters of the old ones: shards (FSDP, tensor parallelism),
`load_state_dict(assign=True)`, `to_empty`. Weights that are unfrozen are missing in an optimizer
that was given only those that required a gradient when it was made.

The trade-off: models of several origins, and weights that are changed in a loop that trains, are
not judged.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass

from truetune.checks.source.evidence.optimizers_before_adapters import (
    ADAPTER_WRAPPERS,
    are_in_exclusive_branches,
    does_optimizer_step_after_event,
    made_optimizers,
    models_of_parameters,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import Lineage, lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Event, StoreEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Element,
    Instance,
    Item,
    Parameter,
    Result,
    Value,
    parts_of_value,
)

LAYERS = (
    "torch.nn.Linear",
    "torch.nn.Bilinear",
    "torch.nn.Embedding",
    "torch.nn.LayerNorm",
    "torch.nn.RMSNorm",
    "torch.nn.Conv*",
    "torch.nn.Sequential",
    "torch.nn.MultiheadAttention",
    "torch.nn.Parameter",
)
"""What brings weights of its own"""
SHARDING = (
    "torch.*.fully_shard",
    "torch.*.FullyShardedDataParallel",
    "torch.*.parallelize_module",
    "torch.*.distribute_module",
)
"""Functions that put shards in the place of the parameters of a module, their first argument"""
KEEPS_PARAMETERS = "use_orig_params"
"""FullyShardedDataParallel then keeps the parameters, and gives each its part of the shard"""
PLACES_OF_MODULES = {
    "set_output_embeddings": 0,
    "set_input_embeddings": 0,
    "add_module": 1,
    "register_module": 1,
    "register_parameter": 1,
}
"""Methods that put a module into a model, and at which place they are given it"""
MAX_DEPTH = 12
"""Attributes, items and methods between a weight and its model: about six"""


@dataclass(frozen=True, slots=True)
class ChangedLater:
    """An optimizer, and what changes the weights of its model after it."""

    optimizer: CallEvent
    change: Event
    kind: str
    """`replaced`, `resized`, `sharded`, `assigned`, `materialized` or `unfrozen`"""
    name: str
    """What is replaced, or the function that shards, as it is written; empty for the others"""


def calls_making_optimizer_and_change(found: ChangedLater) -> tuple[ast.AST, ast.AST]:
    """The two calls, in the function that leads to both, of which one makes the optimizer and one
    the change.
    """
    ways = [
        [*(frame.node for frame in reversed(list(event.frames("call")))), event.node]
        for event in (found.optimizer, found.change)
    ]
    pairs = zip(*ways, strict=False)
    return next((pair for pair in pairs if pair[0] is not pair[1]), (ways[0][-1], ways[1][-1]))


def model_changes_after_optimizers(module: Module) -> Iterator[ChangedLater]:
    """The optimizers of a file that lack weights which were made or unfrozen after them, and train."""
    seen = set()
    for trace in traces_of_scripts_that_reach_file(module):
        if any(trace.methods("add_param_group")):
            continue
        optimizers = list(made_optimizers(trace))
        for optimizer in optimizers:
            if optimizer.home.path != module.path or optimizer.node in seen:
                continue
            changed_later = _first_change_before_step(trace, optimizer, optimizers)
            if changed_later is not None:
                seen.add(optimizer.node)
                yield changed_later


def _first_change_before_step(
    trace: Trace, optimizer: CallEvent, optimizers: list[CallEvent]
) -> ChangedLater | None:
    """The first change of the optimizer's model that is made after it and before it steps."""
    held = _only_model_of_optimizer(optimizer)
    # What an adapter freezes after the optimizer is judged by optimizers_before_adapters.
    if held is None or _adapter_is_put_on_later(trace, optimizer):
        return None
    # Of several optimizers, which one a change is meant for is known only after the last.
    begin = max(one.number for one in optimizers) if len(optimizers) > 1 else 0
    end = min((call.number for call in trace.all_calls if _is_backward(call)), default=math.inf)
    for changed_later in _changes_after_optimizer(trace, optimizer, held):
        if begin < changed_later.change.number < end and does_optimizer_step_after_event(
            trace, optimizer, changed_later.change
        ):
            return changed_later
    return None


def _only_model_of_optimizer(optimizer: CallEvent) -> Lineage | None:
    """The one model whose weights an optimizer is given."""
    params_argument = optimizer.argument(0, "params")
    models = None if params_argument is None else models_of_parameters(params_argument)
    return _single_lineage(models[0]) if models and len(models) == 1 else None


def _is_backward(call: CallEvent) -> bool:
    """Does a call compute gradients?"""
    return call.method in ("backward", "manual_backward") or call.named("*.backward")


def _adapter_is_put_on_later(trace: Trace, optimizer: CallEvent) -> bool:
    """Is an adapter put on a model after the optimizer?"""
    return any(
        call.number > optimizer.number and call.named(*ADAPTER_WRAPPERS) for call in trace.all_calls
    )


def _changes_after_optimizer(
    trace: Trace, optimizer: CallEvent, held: Lineage
) -> Iterator[ChangedLater]:
    """The changes after an optimizer, in the order of the run."""
    params_argument = optimizer.argument(0, "params")
    is_part = (
        params_argument is not None
        and _filters_trainable_parameters(params_argument)
        and _model_was_partly_frozen(trace, optimizer, held)
    )
    for event in trace.events:
        if event.number <= optimizer.number or event.is_in_later_loop_pass:
            continue
        if are_in_exclusive_branches(optimizer, event):
            continue
        name = _replaced_module(trace, event, held)
        if name:
            yield ChangedLater(optimizer, event, "replaced", name)
        if isinstance(event, CallEvent):
            yield from _change_by_new_parameters(optimizer, event, held)
        if is_part and _requires_grad_set_by(event, held) is True:
            yield ChangedLater(optimizer, event, "unfrozen", "")


def _change_by_new_parameters(
    optimizer: CallEvent, call: CallEvent, held: Lineage
) -> Iterator[ChangedLater]:
    """The change that a call makes which puts new parameters in the place of a model's."""
    if call.named(*SHARDING):
        keeps = call.keywords.get(KEEPS_PARAMETERS)
        is_kept = keeps is not None and constant_of(keeps) is not False
        if not is_kept and _is_model_or_part(call.argument(0, "module"), held):
            yield ChangedLater(optimizer, call, "sharded", ast.unparse(_called_name_node(call)))
        return
    kind = _how_method_replaces_parameters(call)
    if kind and _is_model_or_part(call.receiver, held):
        yield ChangedLater(optimizer, call, kind, "")


def _how_method_replaces_parameters(call: CallEvent) -> str:
    """How a method of a model makes new parameters, in words; empty for one that keeps them."""
    if call.method == "resize_token_embeddings":
        return "resized"
    if call.method == "to_empty":
        return "materialized"
    assign = call.argument(2, "assign") if call.method == "load_state_dict" else None
    return "assigned" if assign is not None and constant_of(assign) is True else ""


def _called_name_node(call: CallEvent) -> ast.AST:
    """The node that a call names: `fully_shard` of `fully_shard(model)`."""
    return getattr(call.node, "func", call.node)


def _single_lineage(value: Value) -> Lineage | None:
    """The one way back from a model to the call that made it, or to the parameter that a function
    gets it as; None for several.
    """
    ways = lineages_back_to_origins(value)
    if len(ways) != 1 or not isinstance(ways[0].origin, Result | Instance | Parameter):
        return None
    return ways[0]


def _replaced_module(trace: Trace, event: Event, held: Lineage) -> str:
    """What an event replaces by a new module, as it is written: `model.lm_head`; empty where it
    replaces none.
    """
    put = _owner_value_and_name_assigned(event)
    if put is None:
        return ""
    owner, value, name = put
    if value is None or not _makes_new_weights(trace, value) or not _is_model_or_part(owner, held):
        return ""
    # A new module that is given the old one's weight holds what the optimizer holds.
    stores = (use for use in trace.uses(value) if isinstance(use, StoreEvent) and use.base is value)
    return "" if isinstance(value, Result) and any(stores) else name


def _owner_value_and_name_assigned(event: Event) -> tuple[Value | None, Value | None, str] | None:
    """The owner, the new value and the name of what an event puts into an object; None where it
    puts nothing.
    """
    if isinstance(event, StoreEvent):
        if not isinstance(event.key, str):
            return None
        target = next(iter(getattr(event.node, "targets", [event.node])))
        name = ast.unparse(target) if isinstance(target, ast.Attribute) else event.key
        return event.base, event.value, name
    if not isinstance(event, CallEvent):
        return None
    if event.named("setattr") and len(event.args) == 3:
        return event.args[0], event.args[2], "a module of the model"
    place = PLACES_OF_MODULES.get(event.method or "")
    if place is None or len(event.args) <= place:
        return None
    return event.receiver, event.args[place], "a module of the model"


def _makes_new_weights(trace: Trace, value: Value | None) -> bool:
    """Is it a new layer, or an object of a class of the project that makes layers or parameters of
    its own?
    """
    if isinstance(value, Result):
        return _is_new_layer(value)
    if not isinstance(value, Instance):
        return False
    return any(
        store.base is value and isinstance(store.value, Result) and _is_new_layer(store.value)
        for store in trace.stores
    )


def _is_new_layer(result: Result) -> bool:
    """Does a call make a layer or a parameter that trains?"""
    trains = result.call.keywords.get("requires_grad")
    return result.call.named(*LAYERS) and (trains is None or constant_of(trains) is True)


def _is_model_or_part(value: Value | None, held: Lineage) -> bool:
    """Is it the model of an optimizer, or a part of it?"""
    for _ in range(MAX_DEPTH):
        if value is None:
            return False
        ways = lineages_back_to_origins(value)
        if len(ways) == 1 and ways[0].origin is held.origin:
            return True
        value = _owner_of_part(value)
    return False


def _owner_of_part(value: Value) -> Value | None:
    """What a part of a model is a part of: `model.layers` of `model.layers[0]`; None for no part."""
    if isinstance(value, Attribute | Item):
        return value.base
    if isinstance(value, Element):
        return value.iterable
    if isinstance(value, Result) and value.call.method is not None:
        return value.call.receiver
    return None


def _filters_trainable_parameters(given: Value, depth: int = 0) -> bool:
    """Was an optimizer given only the parameters that required a gradient: `[p for p in ... if
    p.requires_grad]`, `filter(...)`?
    """
    reads = (part for test in _filter_tests(given.node) for part in ast.walk(test))
    if any(isinstance(part, ast.Attribute) and part.attr == "requires_grad" for part in reads):
        return True
    if depth > MAX_DEPTH:
        return False
    return any(_filters_trainable_parameters(part, depth + 1) for part in parts_of_value(given))


def _filter_tests(node: ast.AST | None) -> Iterator[ast.expr]:
    """What elements have to fulfil: the tests of a comprehension, the function of `filter(...)`."""
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        for loop in node.generators:
            yield from loop.ifs
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "filter":
        yield from node.args[:1]


def _model_was_partly_frozen(trace: Trace, optimizer: CallEvent, held: Lineage) -> bool:
    """Was anything of the model frozen before the optimizer was made: by hand, or by its adapter?"""
    if held.has_step(*ADAPTER_WRAPPERS):
        return True
    return any(
        event.number < optimizer.number and _requires_grad_set_by(event, held) is False
        for event in trace.events
    )


def _requires_grad_set_by(event: Event, held: Lineage) -> bool | None:
    """What an event sets `requires_grad` of weights of the model to; None where it does not."""
    if isinstance(event, StoreEvent) and event.key == "requires_grad":
        plain = constant_of(event.value)
        is_known = isinstance(plain, bool) and _is_model_or_part(event.base, held)
        return plain if is_known else None
    if isinstance(event, CallEvent) and event.method == "requires_grad_":
        requires_grad_argument = event.argument(0, "requires_grad")
        plain = True if requires_grad_argument is None else constant_of(requires_grad_argument)
        is_known = isinstance(plain, bool) and _is_model_or_part(event.receiver, held)
        return plain if is_known else None
    return None
