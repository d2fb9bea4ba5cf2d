"""What a script does to a model behind the optimizer over its weights, so that some that train are in no step.

How it works: by a symbolic run. A module that is put in the place of another (`model.lm_head = nn.Linear(...)`), and
`resize_token_embeddings`, bring weights that the optimizer has never seen. Weights that are unfrozen are missing in an
optimizer that was given only those that required a gradient when it was made.

The trade-off: models of several origins, and weights that are changed in a loop that trains, are not judged.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from truetune.checks.source.evidence.optimizers_in_runs import (
    ADAPTER_WRAPPERS,
    made_optimizers,
    models_of_parameters,
    only_lineage,
    stand_in_other_arms,
    steps_behind,
)
from truetune.source.module import Module
from truetune.source.symbolic_execution.constants import constant_of
from truetune.source.symbolic_execution.lineage import Lineage
from truetune.source.symbolic_execution.trace import CallEvent, Event, StoreEvent, Trace
from truetune.source.symbolic_execution.traces import traces_of
from truetune.source.symbolic_execution.values import (
    Attribute,
    Element,
    Item,
    Result,
    Value,
    operands_of,
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
MAX_DEPTH = 12
"""Attributes, items and methods between a weight and its model: about six"""


@dataclass(frozen=True, slots=True)
class ChangedLater:
    """An optimizer, and what changes the weights of its model behind it."""

    optimizer: CallEvent
    change: Event
    kind: str
    """`replaced`, `resized` or `unfrozen`"""
    name: str
    """What is replaced, as it is written; empty for the others"""


def changes_behind_optimizers(module: Module) -> Iterator[ChangedLater]:
    """The optimizers of a file that lack weights which were made or unfrozen behind them, and train."""
    seen = set()
    for trace in traces_of(module):
        if any(trace.methods("add_param_group")):
            continue
        optimizers = list(made_optimizers(trace))
        for optimizer in optimizers:
            if optimizer.home.path != module.path or optimizer.node in seen:
                continue
            found = _first_change(trace, optimizer, optimizers)
            if found is not None:
                seen.add(optimizer.node)
                yield found


def _first_change(
    trace: Trace, optimizer: CallEvent, optimizers: list[CallEvent]
) -> ChangedLater | None:
    """The first change of the optimizer's model that is made behind it and before it steps."""
    given = optimizer.argument(0, "params")
    models = None if given is None else models_of_parameters(given)
    held = only_lineage(models[0]) if models and len(models) == 1 else None
    # What an adapter freezes behind the optimizer is judged by optimizers_before_adapters.
    if given is None or held is None or _gets_adapter(trace, optimizer):
        return None
    last = max(one.number for one in optimizers)
    passes = [call.number for call in trace.all_calls if _is_backward(call)]
    for found in _changes(trace, optimizer, given, held):
        is_before_training = all(found.change.number < number for number in passes)
        is_for_this = found.change.number > last or len(optimizers) == 1
        if is_before_training and is_for_this and steps_behind(trace, optimizer, found.change):
            return found
    return None


def _is_backward(call: CallEvent) -> bool:
    """Does a call compute gradients?"""
    return call.method in ("backward", "manual_backward") or call.named("*.backward")


def _gets_adapter(trace: Trace, optimizer: CallEvent) -> bool:
    """Is an adapter put on a model behind the optimizer?"""
    return any(
        call.number > optimizer.number and call.named(*ADAPTER_WRAPPERS) for call in trace.all_calls
    )


def _changes(
    trace: Trace, optimizer: CallEvent, given: Value, held: Lineage
) -> Iterator[ChangedLater]:
    """The changes behind an optimizer, in the order of the run."""
    freezes = _is_filtered(given) and _has_frozen(trace, optimizer, held)
    for event in trace.events:
        if event.number <= optimizer.number or event.is_repeated:
            continue
        if stand_in_other_arms(optimizer, event):
            continue
        if isinstance(event, StoreEvent):
            name = _replaced_module(trace, event, held)
            if name:
                yield ChangedLater(optimizer, event, "replaced", name)
        if isinstance(event, CallEvent) and event.method == "resize_token_embeddings":
            if _belongs_to(event.receiver, held):
                yield ChangedLater(optimizer, event, "resized", "")
        if freezes and _sets_gradients(event, held) is True:
            yield ChangedLater(optimizer, event, "unfrozen", "")


def _replaced_module(trace: Trace, event: StoreEvent, held: Lineage) -> str:
    """What a store puts a new module in the place of, as it is written; empty where it does not."""
    value = event.value
    is_layer = isinstance(value, Result) and value.call.named(*LAYERS)
    if not is_layer or not isinstance(event.key, str) or not _belongs_to(event.base, held):
        return ""
    # A new module that is given the old one's weight holds what the optimizer holds.
    if any(isinstance(use, StoreEvent) and use.base is value for use in trace.uses(value)):
        return ""
    target = next(iter(getattr(event.node, "targets", [event.node])))
    return ast.unparse(target) if isinstance(target, ast.Attribute) else event.key


def _belongs_to(value: Value | None, held: Lineage) -> bool:
    """Is it the model of an optimizer, or a part of it?"""
    for _ in range(MAX_DEPTH):
        if value is None:
            return False
        way = only_lineage(value)
        if way is not None:
            return way.origin is held.origin
        value = _outer(value)
    return False


def _outer(value: Value) -> Value | None:
    """What a part of a model is a part of: `model.layers` of `model.layers[0]`."""
    if isinstance(value, Attribute | Item):
        return value.base
    if isinstance(value, Element):
        return value.iterable
    if isinstance(value, Result) and value.call.method is not None:
        return value.call.receiver
    return None


def _is_filtered(given: Value, depth: int = 0) -> bool:
    """Were only parameters given that required a gradient: `[p for p in ... if p.requires_grad]`, `filter(...)`?"""
    node = given.node
    tests: list[ast.AST] = []
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        tests = [test for one in node.generators for test in one.ifs]
    elif (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "filter"
    ):
        tests = list(node.args[:1])
    reads = (part for test in tests for part in ast.walk(test))
    if any(isinstance(part, ast.Attribute) and part.attr == "requires_grad" for part in reads):
        return True
    if depth > MAX_DEPTH:
        return False
    return any(_is_filtered(part, depth + 1) for part in operands_of(given))


def _has_frozen(trace: Trace, optimizer: CallEvent, held: Lineage) -> bool:
    """Was anything of the model frozen before the optimizer was made: by hand, or by its adapter?"""
    if held.has_step(*ADAPTER_WRAPPERS):
        return True
    return any(
        event.number < optimizer.number and _sets_gradients(event, held) is False
        for event in trace.events
    )


def _sets_gradients(event: Event, held: Lineage) -> bool | None:
    """What an event sets `requires_grad` of weights of the model to; None where it does not."""
    if isinstance(event, StoreEvent) and event.key == "requires_grad":
        plain = constant_of(event.value)
        is_told = isinstance(plain, bool) and _belongs_to(event.base, held)
        return plain if is_told else None
    if isinstance(event, CallEvent) and event.method == "requires_grad_":
        given = event.argument(0, "requires_grad")
        plain = True if given is None else constant_of(given)
        is_told = isinstance(plain, bool) and _belongs_to(event.receiver, held)
        return plain if is_told else None
    return None
