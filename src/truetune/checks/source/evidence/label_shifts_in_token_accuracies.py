"""Finds tokens that are picked from a causal model's logits and compared with labels, and how many
tokens they look ahead.

How it works: both sides of an equality are followed back, one through `argmax` to the pass of a
causal model, the other to its labels; the places of their tokens are compared as those of a loss
(`label_shifts_in_own_losses.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.label_shifts_in_own_losses import Logits, OwnLossSearch
from truetune.checks.source.evidence.token_positions_in_arrays import (
    KEEPING_METHODS,
    layout_after_index,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import Item, Operation, Result, Value

EQUALITIES = ("==", "!=")
EQUAL_FUNCTIONS = ("torch.eq", "torch.ne", "numpy.equal", "torch.equal")
METRIC_OBJECTS = ("torchmetrics.*", "evaluate.load", "ignite.metrics.*", "torcheval.metrics.*")
METRIC_METHODS = ("__call__", "forward", "update", "compute", "add_batch")
METRIC_FUNCTIONS = (
    "sklearn.metrics.*_score",
    "torchmetrics.functional.*",
    "torcheval.metrics.functional.*",
)
SIDES = (
    ("preds", "target"),
    ("y_true", "y_pred"),
    ("predictions", "references"),
    ("input", "target"),
)
"""The names of what metrics compare, by library"""
PICKING_FUNCTIONS = ("torch.argmax", "numpy.argmax")
MAX_STEPS = 12
"""Casts and slices behind an `argmax`"""


class TokenAccuracy(NamedTuple):
    """A comparison of picked tokens with labels."""

    node: ast.AST
    ahead: int
    """By how many places the label is behind the token that the logits are given: 1 is right"""


def token_accuracies_with_known_label_shift(module: Module) -> Iterator[TokenAccuracy]:
    """The comparisons of a file whose labels and logits are known by their places, each place once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        search = OwnLossSearch(trace)
        for value in trace.values:
            node = value.node
            if node is None or node in seen or module.home(node).path != module.path:
                continue
            ahead = _label_shift_of_comparison(search, value)
            if ahead is not None:
                seen.add(node)
                yield TokenAccuracy(node, ahead)


def _label_shift_of_comparison(search: OwnLossSearch, value: Value) -> int | None:
    """By how many tokens a comparison looks ahead; None for any other value."""
    pair = _sides_of_equality(value)
    if pair is None:
        return None
    for picked, labels in (pair, pair[::-1]):
        logits = _logits_of_picked_tokens(search, picked)
        if logits is not None:
            return search.label_shift_against_logits(logits, labels)
    return None


def _sides_of_equality(value: Value) -> tuple[Value, Value] | None:
    """The two sides of an equality."""
    if isinstance(value, Operation) and value.operator in EQUALITIES and len(value.operands) == 2:
        return value.operands[0], value.operands[1]
    if not isinstance(value, Result):
        return None
    call = value.call
    if call.named(*EQUAL_FUNCTIONS) and len(call.args) == 2:
        return call.args[0], call.args[1]
    if call.method in ("eq", "ne") and call.receiver is not None and call.args:
        return call.receiver, call.args[0]
    return _sides_given_to_metric(call)


def _sides_given_to_metric(call: CallEvent) -> tuple[Value, Value] | None:
    """What a metric of a library compares: a function, or an object wherever it was made and handed
    to.
    """
    maker = call.receiver.call if isinstance(call.receiver, Result) else None
    is_object = call.method in METRIC_METHODS and maker is not None and maker.named(*METRIC_OBJECTS)
    if not is_object and not call.named(*METRIC_FUNCTIONS):
        return None
    for first, second in SIDES:
        sides = call.argument(0, first), call.argument(1, second)
        if sides[0] is not None and sides[1] is not None:
            return sides[0], sides[1]
    return None


def _logits_of_picked_tokens(search: OwnLossSearch, value: Value, depth: int = 0) -> Logits | None:
    """The logits of which `argmax` picked tokens; None where it did not."""
    if depth > MAX_STEPS:
        return None
    if isinstance(value, Item):
        whole = _logits_of_picked_tokens(search, value.base, depth + 1)
        segments = None if whole is None else layout_after_index((whole.segment,), value.key)
        return None if whole is None or not segments else whole._replace(segment=segments[0])
    if not isinstance(value, Result):
        return None
    call = value.call
    picked_from = _tensor_picked_from(call)
    if picked_from is not None:
        return search.logits_of(picked_from)
    if call.method in KEEPING_METHODS and call.receiver is not None:
        return _logits_of_picked_tokens(search, call.receiver, depth + 1)
    return None


def _tensor_picked_from(call: CallEvent) -> Value | None:
    """The tensor from which `argmax`, as a method or a function, picks; None for other calls."""
    if call.method == "argmax" and call.receiver is not None:
        return call.receiver
    return call.args[0] if call.named(*PICKING_FUNCTIONS) and call.args else None
