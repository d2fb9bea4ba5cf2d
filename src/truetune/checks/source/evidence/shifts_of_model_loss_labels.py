"""Finds the labels of which a causal model or its trainer takes the loss, and how many tokens they
are ahead of their ids.

How it works: ids and labels that a causal model, or a trainer of one, is given are compared by the
places of their tokens (`token_offsets_from_source_arrays.py`).

The trade-off: a model that is given labels computes a loss even where the script takes another one
of its logits. So a pass counts only where its loss is read, and a trainer where no function or
method of the project's takes the loss.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.batch_field_sources import (
    IDS,
    LABELS,
    TRAINERS,
    BatchField,
    source_of_field,
)
from truetune.checks.source.evidence.label_shifts_in_own_losses import (
    is_causal_model,
    trains_causal_model,
)
from truetune.checks.source.evidence.token_offsets_from_source_arrays import (
    IDS_WAY,
    LABELS_WAY,
    TokenLayouts,
    tokens_ahead,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import Function, Item, Result, Sequence, Value

LOSS_METHODS = ("compute_loss", "training_step")
"""Methods of a trainer's subclass by which it takes a loss of its own"""
LOSS_KEYS = ("loss", 0)
"""How the loss is read from what a model gives"""


class ShiftedLabels(NamedTuple):
    """Labels of a loss that a causal model takes."""

    taker: ast.AST
    """The call of the model, or the making of the trainer"""
    labels: ast.AST
    """The labels, as they are made or given"""
    is_shifted: bool


def labels_of_model_losses(module: Module) -> Iterator[ShiftedLabels]:
    """The labels of a file of which a model or trainer takes the loss, where they can be compared
    with their ids.
    """
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for shifted in _model_loss_labels_of_run(trace):
            if module.home(shifted.labels).path == module.path and shifted.labels not in seen:
                seen.add(shifted.labels)
                yield shifted


def model_calls_read_without_loss(module: Module) -> set[ast.AST]:
    """The calls of models in a file whose logits are read, and their loss never."""
    read: set[ast.AST] = set()
    unread: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.all_calls:
            if call.method in ("__call__", "forward"):
                output = call.result
                is_unread = "logits" in output.attributes and not _is_loss_read(output)
                (unread if is_unread else read).add(call.node)
    return unread - read


def _model_loss_labels_of_run(trace: Trace) -> Iterator[ShiftedLabels]:
    """The labels of one run."""
    places = TokenLayouts(trace)
    for call in trace.all_calls:
        if call.is_in_later_loop_pass:
            continue
        given = _ids_and_labels_of_pass(call) or _ids_and_labels_of_trainer(trace, call)
        if given is None:
            continue
        ids, labels = given
        shift = tokens_ahead(
            places.layout_of_argument(ids, IDS_WAY), places.layout_of_argument(labels, LABELS_WAY)
        )
        if shift is not None:
            yield ShiftedLabels(call.node, _node_of_labels(labels, call), shift == 1)


def _ids_and_labels_of_pass(
    call: CallEvent,
) -> tuple[Value | BatchField, Value | BatchField] | None:
    """The ids and labels of a pass of a causal model whose loss is read."""
    if call.method not in ("__call__", "forward") or not is_causal_model(call.receiver):
        return None
    spread = call.keywords.get("**")
    ids: Value | BatchField | None = call.argument(0, IDS)
    labels: Value | BatchField | None = call.keywords.get(LABELS)
    if spread is not None:
        ids = ids or BatchField(spread, IDS)
        labels = labels or BatchField(spread, LABELS)
    if ids is None or labels is None or not _is_loss_read(call.result):
        return None
    return ids, labels


def _is_loss_read(output: Result) -> bool:
    """Is the loss read that a model gives?"""
    return "loss" in output.attributes or any(key in output.entries for key in LOSS_KEYS)


def _ids_and_labels_of_trainer(
    trace: Trace, call: CallEvent
) -> tuple[BatchField, BatchField] | None:
    """The ids and labels of the batches of a trainer that takes the model's own loss."""
    if not call.named(*TRAINERS) or call.method is not None or not trains_causal_model(call):
        return None
    if (
        "compute_loss_func" in call.keywords
        or call.is_open
        or _trainer_class_has_own_loss(trace, call)
    ):
        return None
    return BatchField(call.result, IDS), BatchField(call.result, LABELS)


def _trainer_class_has_own_loss(trace: Trace, trainer: CallEvent) -> bool:
    """Has the trainer's class a method of its own for the loss?"""
    made = [one.made_of for one in trace.instances if one.construction is trainer]
    return any(
        isinstance(one.namespace.get(name), Function) for one in made for name in LOSS_METHODS
    )


def _node_of_labels(labels: Value | BatchField, call: CallEvent) -> ast.AST:
    """The node that makes the labels; the call that they are given to where no text stands for
    them.
    """
    value = source_of_field(labels) if isinstance(labels, BatchField) else labels
    while isinstance(value, Sequence) and value.items:
        value = value.items[-1]
    if isinstance(value, Item) and isinstance(constant_of(value.key), str):
        made = source_of_field(BatchField(value.base, str(constant_of(value.key))))
        value = made if isinstance(made, Value) else value
    node = None if isinstance(value, BatchField) else value.node
    return call.node if node is None else node
