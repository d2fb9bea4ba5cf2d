"""Finds perplexities, and exponentials of mean losses, that are averaged over batches without
weighing them by tokens.

How it works: an exponential is followed to the loss of a model, or to a mean of such losses; a mean
is followed to what was put into its list or added to its sum in a loop. A loss that was multiplied
on the way is another value, so weights are seen by construction.

The trade-off: how many tokens a batch has is not seen. Batches of several rows that are padded to
the longest of them have different numbers, or nobody would pad them so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.label_shifts_in_own_losses import LOSS_CLASSES, LOSS_FUNCTIONS
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.element_of_iterable import LOADERS
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Choice,
    Constant,
    Item,
    Operation,
    Option,
    Result,
    Sequence,
    Value,
    parts_of_value,
)

EXPONENTIALS = ("torch.exp", "math.exp", "numpy.exp")
MEANS = ("numpy.mean", "numpy.average", "statistics.mean", "statistics.fmean", "torch.mean")
SUMS = ("sum", "math.fsum", "numpy.sum", "torch.sum")
TENSORS = (
    "torch.tensor",
    "torch.stack",
    "torch.cat",
    "torch.Tensor",
    "numpy.array",
    "list",
    "numpy.asarray",
)
CAST_METHODS = frozenset(
    (
        "item",
        "cpu",
        "float",
        "detach",
        "double",
        "tolist",
        "numpy",
        "to",
        "repeat",
        "expand",
        "squeeze",
    )
)
"""Methods that keep the value of a loss; one that is repeated by its rows is weighted by rows, not by tokens"""
CAST_FUNCTIONS = ("float", "round", "min", "torch.nan_to_num", "torch.tensor", "torch.as_tensor")
GATHERING_METHODS = frozenset(("gather", "gather_for_metrics", "reduce"))
NO_GRADIENT = ("torch.no_grad", "torch.inference_mode", "torch.set_grad_enabled")
MEAN_OF_PERPLEXITIES = "mean_perplexity"
"""What the metric `perplexity` of Hugging Face Evaluate calls the mean of its texts' perplexities"""
PADDING_CALLS = (
    "torch.nn.utils.rnn.pad_sequence",
    "transformers.DataCollatorForSeq2Seq",
    "transformers.DataCollatorWithPadding",
    "transformers.DataCollatorForLanguageModeling",
)
MAX_STEPS = 12
"""Casts between a loss, its exponential and a mean"""
MAX_VALUES = 1000
"""Values that are looked at behind one batch"""
MAX_TERMS = 40
"""Terms of one sum"""


class AveragedPerplexities(NamedTuple):
    """A mean of perplexities, or the exponential of a mean of losses."""

    mean: ast.AST
    exponential: ast.AST
    is_of_perplexities: bool
    """Is it a mean of perplexities, and not the exponential of a mean of losses?"""
    are_padded: bool
    """The batches of all those losses are padded to their longest row, so they differ in tokens"""


def averaged_perplexities(module: Module) -> Iterator[AveragedPerplexities]:
    """The means of a file that do not weigh losses by tokens, each place once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for found in _averaged_perplexities_of_run(trace):
            if found.mean not in seen and module.home(found.exponential).path == module.path:
                seen.add(found.mean)
                yield found


def _averaged_perplexities_of_run(trace: Trace) -> Iterator[AveragedPerplexities]:
    """The means of one run."""
    for value in trace.values:
        node = _averaged_exponential(value)
        if node is not None and value.node is not None:
            yield AveragedPerplexities(value.node, node, True, False)
    for call in trace.all_calls:
        exponent = _exponent_of(call)
        if exponent is None:
            continue
        mean = _value_before_move_rounding_or_gather(exponent)
        losses = _loss_calls_among(_terms_averaged_over_rows(mean))
        if mean.node is not None and losses and all(map(_is_evaluation_loss, losses)):
            are_padded = all(map(_batch_is_padded_to_longest, losses))
            yield AveragedPerplexities(mean.node, call.node, False, are_padded)


def _averaged_exponential(value: Value) -> ast.AST | None:
    """The exponential of a loss that a mean is taken of; for a figure of a library, the figure;
    None for no mean.
    """
    if isinstance(value, Item) and constant_of(value.key) == MEAN_OF_PERPLEXITIES:
        return value.node
    for term in _terms_averaged_over_rows(value):
        call_event = _exponential_of_loss(term)
        if call_event is not None:
            return call_event.node
    return None


def _loss_calls_among(terms: list[Value]) -> list[CallEvent]:
    """What gave the losses among the terms of a mean."""
    return [loss for loss in map(_unweighted_loss_call, terms) if loss is not None]


def _batch_is_padded_to_longest(loss: CallEvent) -> bool:
    """Is the batch of a loss certainly padded to the longest of several rows?"""
    waiting = list(loss.inputs)
    seen: set[int] = set()
    is_found = False
    while waiting and len(seen) < MAX_VALUES:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        call = value.call if isinstance(value, Result) else None
        if call is not None and _is_loader_of_single_row_batches(call):
            return False
        is_found = is_found or (call is not None and _pads_to_longest(call))
        waiting += parts_of_value(value)
    return is_found


def _pads_to_longest(call: CallEvent) -> bool:
    """Does a call pad rows to the longest of them, or make a collator that does?"""
    if call.named(*PADDING_CALLS):
        return True
    return constant_of(call.keywords.get("padding")) in (True, "longest")


def _is_loader_of_single_row_batches(call: CallEvent) -> bool:
    """Is it a loader of batches of one row?"""
    if not call.named(*LOADERS):
        return False
    size = call.argument(1, "batch_size")
    return call.lacks("batch_sampler") if size is None else bool(constant_of(size) == 1)


def _terms_averaged_over_rows(value: Value) -> list[Value]:
    """What a mean is taken of in a loop or over any number of rows; nothing where a value is no
    such mean.
    """
    if isinstance(value, Operation) and value.operator == "/":
        return _terms_summed(value.operands[0])
    if not isinstance(value, Result):
        return []
    call = value.call
    if call.named(*MEANS) and call.args:
        return _terms_put_into_list(call.args[0])
    if call.method == "mean" and call.receiver is not None and not call.args:
        return _terms_put_into_list(call.receiver)
    return []


def _terms_put_into_list(values: Value) -> list[Value]:
    """What was put into a list in a loop or comprehension."""
    for _ in range(MAX_STEPS):
        if isinstance(values, Sequence):
            return values.items[-MAX_TERMS:] if values.is_open else []
        if not isinstance(values, Result):
            return []
        call = values.call
        is_cast = call.method in CAST_METHODS
        inner = call.receiver if is_cast else None
        if call.named(*TENSORS) and call.args:
            inner = call.args[0]
        if inner is None:
            return []
        values = inner
    return []


def _terms_summed(total: Value) -> list[Value]:
    """What a sum adds up: of a list, or by `+=` in a loop."""
    total = _value_before_move_rounding_or_gather(total)
    if isinstance(total, Result):
        call = total.call
        if call.named(*SUMS) and call.args:
            return _terms_put_into_list(call.args[0])
        is_sum = call.method == "sum" and call.receiver is not None and not call.args
        return _terms_put_into_list(call.receiver) if is_sum and call.receiver is not None else []
    return _terms_added_in_loop_passes(total)


def _terms_added_in_loop_passes(total: Value) -> list[Value]:
    """What `+=` adds in the passes of a loop."""
    terms: list[Value] = []
    waiting = [total]
    while waiting and len(terms) < MAX_TERMS:
        one = waiting.pop()
        if isinstance(one, Operation) and one.operator == "+":
            waiting += one.operands
        elif not isinstance(one, Constant):
            terms.append(one)
    # Two terms of one place are two passes of a loop; others are parts of one loss.
    nodes = {one.node for one in terms}
    return terms if len(nodes) == 1 and len(terms) > 1 else []


def _value_before_move_rounding_or_gather(value: Value) -> Value:
    """The value before it was moved, rounded or gathered."""
    for _ in range(MAX_STEPS):
        if isinstance(value, Choice):
            known = [one for one in value.options if not isinstance(one, Constant)]
            if not known or any(one.node is not known[-1].node for one in known):
                return value
            value = known[-1]
        elif isinstance(value, Option) and value.default is not None:
            value = value.default
        elif isinstance(value, Result):
            inner = _value_cast_by(value.call)
            if inner is None:
                return value
            value = inner
        else:
            return value
    return value


def _value_cast_by(call: CallEvent) -> Value | None:
    """What a cast is given; None for any other call."""
    if call.method in CAST_METHODS:
        return call.receiver
    if call.method in GATHERING_METHODS or call.named(*CAST_FUNCTIONS):
        return call.args[0] if call.args else None
    # The mean of one loss, or of those of all processes.
    is_mean = call.method == "mean" and not call.args and call.receiver is not None
    if is_mean and call.receiver is not None and not _terms_put_into_list(call.receiver):
        return call.receiver
    return None


def _exponent_of(call: CallEvent) -> Value | None:
    """What an exponential is taken of; None for any other call."""
    if call.named(*EXPONENTIALS) and call.args:
        return call.args[0]
    return call.receiver if call.method == "exp" and not call.args else None


def _exponential_of_loss(term: Value) -> CallEvent | None:
    """The exponential of one loss that a term is."""
    made = _value_before_move_rounding_or_gather(term)
    if not isinstance(made, Result):
        return None
    power = _exponent_of(made.call)
    return None if power is None or _unweighted_loss_call(power) is None else made.call


def _unweighted_loss_call(value: Value) -> CallEvent | None:
    """The pass or loss function that gave a mean loss which nothing was multiplied with; None for
    any other value.
    """
    loss = _value_before_move_rounding_or_gather(value)
    if isinstance(loss, Attribute) and loss.name == "loss":
        return _model_call_of_output(loss.base)
    if isinstance(loss, Item) and constant_of(loss.key) == "loss":
        return _model_call_of_output(loss.base)
    if not isinstance(loss, Result):
        return None
    configured = _call_with_reduction(loss.call)
    if configured is None:
        return None
    reduction = configured.keywords.get("reduction")
    return loss.call if reduction is None or constant_of(reduction) == "mean" else None


def _call_with_reduction(call: CallEvent) -> CallEvent | None:
    """The call that is given the reduction of a loss: the function, or the construction of the loss
    object that is called; None for any other call.
    """
    if call.named(*LOSS_FUNCTIONS):
        return call
    maker = call.receiver.call if isinstance(call.receiver, Result) else None
    if call.method == "__call__" and maker is not None and maker.named(*LOSS_CLASSES):
        return maker
    return None


def _model_call_of_output(output: Value) -> CallEvent | None:
    """The call of a model that gave an output."""
    if isinstance(output, Result) and output.call.method in ("__call__", "forward"):
        return output.call
    return None


def _is_evaluation_loss(loss: CallEvent) -> bool:
    """Is it computed for an evaluation? A loss that is trained on is only shown as a perplexity."""
    for frame in loss.frames("with"):
        maker = frame.value
        name = maker.call.names if isinstance(maker, Result) else (getattr(maker, "name", ""),)
        if any(one in NO_GRADIENT for one in name):
            return True
    return False
