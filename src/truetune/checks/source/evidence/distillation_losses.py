"""Finds the losses of hand-written distillations: which predictions of student and teacher they compare, and how.

How it works: the two arguments of a Kullback-Leibler divergence are followed back, through softmax, temperature,
masks and slices, to the logits of a forward pass and the load of its model. The teacher is the one whose pass
stands in `torch.no_grad()` or is detached.

The trade-off: where both passes have a gradient, or neither, which one is the teacher would be a guess; such a loss
is not judged. The direction of a divergence is no fault: the reverse one is a method of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from truetune.checks.source.evidence.is_value_logit_or_probability import KEEPING
from truetune.checks.source.evidence.optimizers_before_adapters import single_model_lineage
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Item,
    Operation,
    Parameter,
    Result,
    Sequence,
    Slice,
    Value,
)

DIVERGENCES = ("torch.nn.functional.kl_div", "torch.nn.KLDivLoss")
SOFTMAXES = ("softmax", "log_softmax")
NO_GRADIENT = ("torch.no_grad", "torch.inference_mode")
MAX_STEPS = 24
"""Steps from a divergence back to the logits; a loss takes about six"""
Bounds = tuple[int | None, int | None]
"""Begin and end of the positions that are kept; None where it is the row's own"""
ALL_POSITIONS: Bounds = (None, None)


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predictions of one model, as a divergence gets them."""

    forward: CallEvent
    load: CallEvent | None
    """None for the model that a trainer hands to its loss"""
    positions: Bounds
    temperature: float | None
    """What the logits are divided by; None where it is not known"""
    is_detached: bool
    """No gradient flows back through it"""

    @property
    def model_name(self) -> str:
        """The name or folder of the model; empty where it is not known."""
        if self.load is None:
            return ""
        name = constant_of(self.load.argument(0, "pretrained_model_name_or_path"))
        return name if isinstance(name, str) else ""


@dataclass(frozen=True, slots=True)
class DistillationLoss:
    """A divergence of a student from its teacher."""

    trace: Trace
    call: CallEvent
    student: Prediction
    teacher: Prediction


def distillation_losses(module: Module) -> Iterator[DistillationLoss]:
    """The divergences of a file between a student and its teacher, each place once."""
    seen = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.all_calls:
            if call.home.path != module.path or call.node in seen or not _is_divergence(call):
                continue
            loss = _loss_of_divergence(trace, call)
            if loss is not None:
                seen.add(call.node)
                yield loss


def divergences_of_file(module: Module) -> Iterator[object]:
    """The calls of a file that compute or make a Kullback-Leibler divergence."""
    yield from module.calls(*DIVERGENCES)


def _is_divergence(call: CallEvent) -> bool:
    """Does a call compute a divergence: by the function, or by an object of its class?"""
    made = call.receiver
    if call.method in ("__call__", "forward") and isinstance(made, Result):
        return made.call.named("torch.nn.KLDivLoss")
    return call.named("torch.nn.functional.kl_div")


def _loss_of_divergence(trace: Trace, call: CallEvent) -> DistillationLoss | None:
    """The student and the teacher of a divergence; None where they are not told."""
    values = (call.argument(0, "input"), call.argument(1, "target"))
    predictions = [None if value is None else _prediction_behind(value) for value in values]
    known = [one for one in predictions if one is not None]
    students = [one for one in known if not one.is_detached]
    teachers = [one for one in known if one.is_detached]
    if len(students) != 1 or len(teachers) != 1:
        return None
    return DistillationLoss(trace, call, students[0], teachers[0])


def _prediction_behind(value: Value) -> Prediction | None:
    """The prediction that an argument of a divergence is made of; None where the way back is not known."""
    positions = ALL_POSITIONS
    temperature: float | None = 1.0
    is_detached = False
    for _ in range(MAX_STEPS):
        if isinstance(value, Attribute) and value.name == "logits":
            return _prediction_of_logits(value.base, positions, temperature, is_detached)
        if isinstance(value, Operation) and value.operator == "/":
            temperature = _divided_further(temperature, value.operands[1])
            value = value.operands[0]
        elif isinstance(value, Item):
            kept = _positions_kept_by(value)
            positions = positions if kept is None else kept
            value = value.base
        elif isinstance(value, Result):
            is_detached = is_detached or value.call.method == "detach"
            source = _what_call_keeps(value.call)
            if source is None:
                return None
            value = source
        else:
            return None
    return None


def _divided_further(temperature: float | None, divisor: Value) -> float | None:
    """A temperature times another divisor; None where one of them is not known."""
    number = constant_of(divisor)
    if temperature is None or not isinstance(number, int | float):
        return None
    return temperature * float(number)


def _what_call_keeps(call: CallEvent) -> Value | None:
    """What a softmax, or a method that keeps its object's numbers, is applied to; None for any other call."""
    made = call.receiver
    if call.method in SOFTMAXES or call.method in KEEPING:
        return made
    if call.method == "__call__" and isinstance(made, Result):
        is_layer = made.call.named("torch.nn.Softmax", "torch.nn.LogSoftmax")
        return call.argument(0, "input") if is_layer else None
    names = [name.rpartition(".")[2] for name in call.names]
    is_known = any(name in SOFTMAXES or name in KEEPING for name in names)
    return call.argument(0, "input") if is_known else None


def _positions_kept_by(item: Item) -> Bounds | None:
    """The positions that an index keeps of (rows, positions, vocabulary); None where it chooses none."""
    parts = item.key.items if isinstance(item.key, Sequence) else [item.key]
    for part in parts:
        if isinstance(part, Slice) and (part.start is not None or part.stop is not None):
            ends = [None if one is None else constant_of(one) for one in (part.start, part.stop)]
            if all(end is None or type(end) is int for end in ends):
                return ends[0], ends[1]
    return None


def _prediction_of_logits(
    output: Value, positions: Bounds, temperature: float | None, is_detached: bool
) -> Prediction | None:
    """The prediction of a forward pass; None where its model is not known."""
    if not isinstance(output, Result) or output.call.receiver is None:
        return None
    forward = output.call
    lineage = single_model_lineage(forward.receiver)
    load = None if lineage is None else lineage.call_that_gave_origin
    is_handed = isinstance(forward.receiver, Parameter)
    if forward.method not in ("__call__", "forward") or (load is None and not is_handed):
        return None
    detached = is_detached or _stands_without_gradients(forward)
    return Prediction(forward, load, positions, temperature, detached)


def _stands_without_gradients(call: CallEvent) -> bool:
    """Does a pass stand in `with torch.no_grad()`?"""
    values = [frame.value for frame in call.frames("with")]
    return any(isinstance(one, Result) and one.call.named(*NO_GRADIENT) for one in values)
