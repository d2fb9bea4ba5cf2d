"""Finds labels that `pad_sequence` pads with 0, as it does where no value is given.

How it works: in the symbolic run of a script, what a model is given as `labels` is followed back through moves, copies
and the collator to the call that padded it.

The trade-off: only a model that computes its own loss is judged, for a hand-written loss may leave 0 out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import (
    Item,
    Mapping,
    Opaque,
    Result,
    Value,
    options_of_choice,
)

PAD_SEQUENCE = "torch.nn.utils.rnn.pad_sequence"
MODELS = ("transformers.*.from_pretrained",)
MOVES = frozenset(("to", "cuda", "cpu", "long", "contiguous", "clone", "detach"))
MAX_STEPS = 12
"""Moves and columns between a model's labels and what padded them"""


def labels_padded_with_zero(module: Module) -> Iterator[ast.AST]:
    """The calls of `pad_sequence` without a value whose result a model takes as labels, each once."""
    if PAD_SEQUENCE.rpartition(".")[2] not in module.text:
        return
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.methods("__call__", "forward"):
            if call.receiver is None or not _is_loaded_model(call.receiver):
                continue
            padding = _zero_padding_call_of(_labels_given(call), MAX_STEPS)
            if padding is None or padding.node in seen or padding.home is not module:
                continue
            seen.add(padding.node)
            yield padding.node


def _is_loaded_model(model: Value) -> bool:
    """Is a model one of transformers, which computes its own loss?"""
    loads = [way.call_that_gave_origin for way in lineages_back_to_origins(model)]
    return bool(loads) and all(load is not None and load.named(*MODELS) for load in loads)


def _labels_given(call: CallEvent) -> Value | None:
    """The labels that a model's call is given, by their name or in a batch."""
    if "labels" in call.keywords:
        return call.keywords["labels"]
    batch = call.keywords.get("**")
    for option in () if batch is None else options_of_choice(batch):
        if isinstance(option, Mapping | Opaque) and "labels" in option.entries:
            return option.entries["labels"]
    return None


def _zero_padding_call_of(value: Value | None, steps: int) -> CallEvent | None:
    """The call that padded labels with 0; None where another value is given, or nothing pads."""
    if value is None or steps <= 0:
        return None
    if isinstance(value, Item) and isinstance(value.base, Mapping):
        return _zero_padding_call_of(value.base.entries.get(constant_of(value.key)), steps - 1)
    if not isinstance(value, Result):
        return None
    call = value.call
    if call.named(PAD_SEQUENCE):
        padding_value_argument = call.argument(2, "padding_value")
        is_zero = padding_value_argument is None or constant_of(padding_value_argument) == 0
        return call if is_zero and not call.is_open else None
    return _zero_padding_call_of(call.receiver, steps - 1) if call.method in MOVES else None
