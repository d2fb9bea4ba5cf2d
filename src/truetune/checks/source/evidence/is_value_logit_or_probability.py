"""Says what numbers a value holds in a symbolic run: logits, probabilities or their logarithms.

How it works: a value is followed back, through reshapes, casts, slices and choices, to the softmax,
sigmoid or logarithm that made it, to the output of a language model or to a linear layer.

The trade-off: sums and products change the scale in ways that are not followed; then nothing is
known, but that a constant that is added in front of a logarithm (`torch.log(p + 1e-9)`) keeps the
scale, and so does a temperature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Choice,
    Item,
    Operation,
    Result,
    Sequence,
    Value,
)

Scale = Literal["logits", "probabilities", "log-probabilities", "classes"]
SQUASHING = ("softmax", "sigmoid")
LOG_SQUASHING = ("log_softmax", "logsigmoid")
SQUASHING_LAYERS = ("torch.nn.Softmax", "torch.nn.Sigmoid", "torch.nn.Softmax2d")
LOG_LAYERS = ("torch.nn.LogSoftmax", "torch.nn.LogSigmoid")
LOGARITHMS = ("log",)
EXPONENTIALS = ("exp",)
CHOOSING = ("argmax",)
KEEPING = frozenset(
    ("to", "cuda", "cpu", "clone", "detach", "contiguous", "view", "reshape", "flatten", "squeeze")
    + (
        "unsqueeze",
        "float",
        "half",
        "bfloat16",
        "double",
        "type",
        "transpose",
        "permute",
        "type_as",
    )
    + ("view_as", "clamp", "clip", "clamp_min", "masked_select", "index_select", "requires_grad_")
)
"""Methods, and functions of torch, whose result has the scale of the tensor"""
JOINING = ("torch.cat", "torch.stack", "torch.concat", "torch.vstack")
LINEAR_LAYERS = ("torch.nn.Linear",)
MAX_DEPTH = 24
"""Reshapes and moves behind one another; a loss takes about six"""
MAX_EPSILON = 1e-2
"""A constant up to which a sum is that of a probability and what keeps its logarithm finite"""


@dataclass(frozen=True, slots=True)
class ScoreScale:
    """A scale, and what gave a value that scale."""

    scale: Scale
    origin: Value


def score_scale_of(value: Value, depth: int = 0) -> ScoreScale | None:
    """What numbers a value holds; None where it is not known."""
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, Choice):
        return _common_score_scale(value.options, depth)
    if isinstance(value, Attribute) and value.name == "logits":
        return ScoreScale("logits", value)
    if isinstance(value, Item):
        if constant_of(value.key) == "logits":
            return ScoreScale("logits", value)
        return None if _is_part_of_model_output(value) else score_scale_of(value.base, depth + 1)
    if isinstance(value, Operation):
        return _scale_of_operation(value, depth)
    return _scale_of_call(value, depth) if isinstance(value, Result) else None


def _common_score_scale(values: tuple[Value, ...] | list[Value], depth: int) -> ScoreScale | None:
    """The scale that all values have; None where one is not known, or differs."""
    score_scales = [score_scale_of(one, depth + 1) for one in values]
    first = score_scales[0] if score_scales else None
    is_one = first is not None and all(
        one is not None and one.scale == first.scale for one in score_scales
    )
    return first if is_one else None


def _is_part_of_model_output(value: Item) -> bool:
    """Is it a part of a model's output, which holds loss, logits and states?"""
    base = value.base
    is_call = isinstance(base, Result) and base.call.method in ("__call__", "forward")
    return is_call and isinstance(constant_of(value.key), int | str)


def _scale_of_operation(value: Operation, depth: int) -> ScoreScale | None:
    """The scale of logits over a temperature, and of a probability beside a small constant."""
    first = score_scale_of(value.operands[0], depth + 1)
    if first is None or len(value.operands) < 2:
        return None
    other = value.operands[1]
    plain = constant_of(other)
    is_number = isinstance(plain, int | float) and not isinstance(plain, bool)
    if value.operator in ("/", "*") and first.scale == "logits":
        # A temperature is a number, also one that is given from outside; a gate is a tensor.
        return first if is_number or _may_be_temperature(other) else None
    is_small = is_number and abs(plain) <= MAX_EPSILON
    return first if value.operator in ("+", "-") and is_small else None


def _may_be_temperature(value: Value) -> bool:
    """Is it an attribute or an argument by whose name a temperature is given?"""
    name = value.name if isinstance(value, Attribute) else getattr(value, "name", "")
    return isinstance(name, str) and name.lower() in ("t", "temp", "temperature", "tau")


def _scale_of_call(value: Result, depth: int) -> ScoreScale | None:
    """The scale of what a call gives."""
    call = value.call
    layer = call.receiver if call.method in ("__call__", "forward") else None
    if isinstance(layer, Result):
        return _scale_of_layer(value, layer.call, depth)
    if call.named(*JOINING) and call.args and isinstance(call.args[0], Sequence):
        return _common_score_scale(call.args[0].items, depth)
    name, given = _function_name_and_tensor(call)
    if given is None:
        return None
    fixed = _scale_always_given_by_function(name)
    if fixed is not None:
        return ScoreScale(fixed, value)
    inner = score_scale_of(given, depth + 1)
    if inner is None or name in KEEPING:
        return inner
    changed = _scale_after_log_or_exp(name, inner.scale)
    return None if changed is None else ScoreScale(changed, value)


def _scale_after_log_or_exp(name: str, scale: Scale) -> Scale | None:
    """The scale that a logarithm or an exponential makes of another one; None for anything else."""
    if name in LOGARITHMS and scale == "probabilities":
        return "log-probabilities"
    if name in EXPONENTIALS and scale == "log-probabilities":
        return "probabilities"
    return None


def _scale_always_given_by_function(name: str) -> Scale | None:
    """The scale that a function gives whatever it is given, as softmax does; None for others."""
    if name in SQUASHING:
        return "probabilities"
    if name in LOG_SQUASHING:
        return "log-probabilities"
    return "classes" if name in CHOOSING else None


def _function_name_and_tensor(call: CallEvent) -> tuple[str, Value | None]:
    """The name and the tensor of a call: `softmax` and `x`, of `x.softmax(-1)`, `torch.softmax(x,
    -1)` and `F.softmax(x)`.
    """
    if call.method is not None and call.receiver is not None:
        return call.method, call.receiver
    of_torch = [name for name in call.names if name.startswith("torch.")]
    if not of_torch:
        return "", None
    return of_torch[0].rpartition(".")[2], call.argument(0, "input")


def _scale_of_layer(value: Result, call_event: CallEvent, depth: int) -> ScoreScale | None:
    """The scale of what a layer of torch gives: softmax, a linear layer, or the last one of a
    sequence.
    """
    if call_event.named(*SQUASHING_LAYERS):
        return ScoreScale("probabilities", value)
    if call_event.named(*LOG_LAYERS):
        return ScoreScale("log-probabilities", value)
    if call_event.named(*LINEAR_LAYERS):
        return ScoreScale("logits", value)
    if call_event.named("torch.nn.Sequential") and call_event.args:
        last = call_event.args[-1]
        if isinstance(last, Result) and depth < MAX_DEPTH:
            return _scale_of_layer(value, last.call, depth + 1)
    return None
