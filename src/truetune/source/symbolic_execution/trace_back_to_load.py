"""Follows a model, adapter or loader back to the calls that made it, through everything that wraps
or moves it.

The trade-off: what a library gives that is not known here ends the way back; then the origin is that call, and a rule
that needs a load must not take it for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Choice,
    Item,
    Option,
    Result,
    Unknown,
    Value,
)

MAX_DEPTH = 24
"""Wrappers around one object. A model is moved, wrapped for adapters, compiled and prepared: about six"""
MAX_WAYS = 32
"""Ways back that are followed: branches behind one another multiply them"""
KEEPING_METHODS = frozenset(
    (
        "to",
        "cuda",
        "cpu",
        "eval",
        "train",
        "half",
        "bfloat16",
        "float",
        "requires_grad_",
        "merge_and_unload",
        "unload",
        "unwrap_model",
        "prepare_model",
        "prepare_data_loader",
        "prepare_optimizer",
        "setup",
        "setup_module",
        "for_inference",
        "for_training",
    )
)
"""Methods whose result is the object itself or the model that they are given"""
WRAPPING_FUNCTIONS = (
    "peft.get_peft_model",
    "peft.PeftModel*.from_pretrained",
    "peft.prepare_model_for_kbit_training",
    "torch.compile",
    "copy.deepcopy",
    "torch.nn.DataParallel",
    "torch.nn.parallel.*DataParallel",
    "torch.distributed.fsdp.*",
    "accelerate.dispatch_model",
    "unsloth.*.get_peft_model",
    "unsloth.*.for_inference",
    "unsloth.*.for_training",
    "*.tqdm",
    "tqdm.*",
)
"""Functions whose result wraps their first argument"""
MODEL_ATTRIBUTES = frozenset(("module", "base_model", "model", "_orig_mod"))
"""Attributes of a wrapper that are the model inside"""


@dataclass(frozen=True, slots=True)
class Lineage:
    """One way back from a value."""

    steps: tuple[CallEvent, ...]
    """What moved or wrapped it, the latest first"""
    origin: Value
    """What cannot be followed further: the result of a load, a parameter"""

    @property
    def call_that_gave_origin(self) -> CallEvent | None:
        """The call that the origin is the result of, or a part of its result; None where it is none."""
        origin = self.origin
        while isinstance(origin, Item):
            origin = origin.base
        return origin.call if isinstance(origin, Result) else None

    def has_step(self, *names: str) -> bool:
        """Did a method of that name, or a function that matches one of these patterns, handle the
        value on its way?
        """
        return any(step.method in names or step.named(*names) for step in self.steps)


def lineages_back_to_origins(value: Value) -> list[Lineage]:
    """All ways back from a value, one for each of its options; where there are too many, one of an unknown origin."""
    ways = list(islice(_trace_lineages_behind_wrappers(value, 0), MAX_WAYS + 1))
    if len(ways) > MAX_WAYS:
        return [*ways[:MAX_WAYS], Lineage((), Unknown("too many ways"))]
    return ways


def _trace_lineages_behind_wrappers(value: Value, depth: int) -> Iterator[Lineage]:
    """The ways back from a value that stands behind so many wrappers."""
    if depth > MAX_DEPTH:
        yield Lineage((), Unknown("too many wrappers"))
        return
    if isinstance(value, Choice):
        for option in value.options:
            yield from _trace_lineages_behind_wrappers(option, depth + 1)
        return
    if isinstance(value, Option) and value.default is not None:
        yield from _trace_lineages_behind_wrappers(value.default, depth + 1)
        return
    inner, step = _wrapped_value_and_call(value)
    if inner is None:
        yield Lineage((), value)
        return
    for one in _trace_lineages_behind_wrappers(inner, depth + 1):
        steps = one.steps if step is None else (step, *one.steps)
        yield Lineage(steps, one.origin)


def _wrapped_value_and_call(value: Value) -> tuple[Value | None, CallEvent | None]:
    """What a value wraps, and the call that wrapped it; None where it wraps nothing that is known."""
    if isinstance(value, Attribute) and value.name in MODEL_ATTRIBUTES:
        return value.base, None
    if isinstance(value, Item) and isinstance(value.base, Result):
        return _prepared_argument_and_call(value, value.base.call)
    if isinstance(value, Result):
        return _model_or_loader_wrapped_by_call(value.call), value.call
    return None, None


def _model_or_loader_wrapped_by_call(call: CallEvent) -> Value | None:
    """The model, adapter or loader that the result of a call wraps, or is; None for any other call."""
    if call.method in KEEPING_METHODS:
        takes_model = call.method.startswith(("unwrap", "prepare"))
        given = call.args[0] if call.args and takes_model else None
        return given or call.receiver
    if call.method == "prepare" and len(call.args) == 1:
        return call.args[0]
    if call.named("peft.inject_adapter_in_model"):
        return call.argument(1, "model")
    if call.named(*WRAPPING_FUNCTIONS):
        return call.args[0] if call.args else call.keywords.get("model")
    return None


def _prepared_argument_and_call(
    value: Item, call: CallEvent
) -> tuple[Value | None, CallEvent | None]:
    """The argument that `accelerator.prepare(model, optimizer)` or
    `deepspeed.initialize(model=...)` returns at one place, and the call.
    """
    position = constant_of(value.key)
    if not isinstance(position, int):
        return None, None
    if call.method in ("prepare", "setup") and 0 <= position < len(call.args):
        return call.args[position], call
    if call.named("deepspeed.initialize") and position == 0:
        return call.argument(1, "model"), call
    return None, None
