"""Finds where a script reads or pools positions of a padded batch as if each row filled them all.

How it works: the axes of tensors are followed (`tensor_axes`). Where an operation takes the axis of the positions
away, or an index takes the last of them, the walk goes back to the model's call, and from its ids to the tokenizer's
call that padded them. A mask on the way (`attention_mask`, a comparison, `masked_fill`) means that the script knows of
the pads.

The trade-off: only batches of a tokenizer that certainly pads several texts are judged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.prompts_padded_on_the_right import (
    call_making_ids,
    does_tokenizer_pad_several_rows,
    padding_side_at_call,
)
from truetune.checks.source.evidence.tensor_axes import POSITIONS, axes_of, reduced_axis
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Item,
    Operation,
    Result,
    Sequence,
    Slice,
    Value,
    options_of_choice,
    parts_of_value,
)

COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">="))
MASKING_METHODS = frozenset(
    ("masked_fill", "masked_fill_", "masked_select", "where", "ne", "eq", "masked_mean", "nonzero")
)
LOADS = ("transformers.*.from_pretrained", "peft.*.from_pretrained", "peft.get_peft_model")
ENCODERS = re.compile(r"bert|electra|deberta|minilm|mpnet|e5-|bge-|gte-", re.I)
"""Names of models that look both ways, whose last position means nothing special"""
MAX_VALUES = 200
"""Values between a pooled tensor and the model; some twenty"""


class PooledPads(NamedTuple):
    """A sum or mean over the positions of a padded batch."""

    node: ast.AST
    what: str
    """`mean` or `sum`"""
    padding: ast.AST


class LastPositionRead(NamedTuple):
    """A read of the last position of rows that are not padded on the left."""

    node: ast.AST
    padding: ast.AST
    is_right: bool
    """Is the right side set, and not only the tokenizer's own?"""


def poolings_that_include_pads(module: Module) -> Iterator[PooledPads]:
    """The sums and means over positions of a padded batch that no mask is part of, each place once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.all_calls:
            method = call.method or (call.names[0].rpartition(".")[2] if call.names else "")
            if method not in ("mean", "sum") or call.node in seen or call.home is not module:
                continue
            if reduced_axis(call) != POSITIONS:
                continue
            padding = _padding_without_mask(call.inputs)
            if padding is not None:
                seen.add(call.node)
                yield PooledPads(call.node, method, padding.node)


def last_positions_read(module: Module) -> Iterator[LastPositionRead]:
    """The reads of the last position of a padded batch that is not padded on the left."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for value in trace.values:
            if not isinstance(value, Item) or value.node is None or value.node in seen:
                continue
            if module.home(value.node) is not module or not module.holds(value.node):
                continue
            padding = _padding_before_last_position(value)
            if padding is None:
                continue
            side = _side_of_padding(module, trace, padding)
            if side != "left":
                seen.add(value.node)
                yield LastPositionRead(value.node, padding.node, side == "right")


def _side_of_padding(module: Module, trace: Trace, padding: CallEvent) -> object:
    """The side that a tokenizer pads on: left where any file beside may set it."""
    side = padding_side_at_call(trace, padding)
    if side in ("left", "right"):
        return side
    is_mentioned = any("padding_side" in part.text for part in module.self_and_files_run_together)
    return "left" if is_mentioned else None


def _padding_before_last_position(value: Item) -> CallEvent | None:
    """What pads the rows of which `x[:, -1]` reads the last position; None for any other index."""
    keys = value.key.items if isinstance(value.key, Sequence) else []
    if len(keys) < 2 or not isinstance(keys[0], Slice) or constant_of(keys[1]) != -1:
        return None
    axes = axes_of(value.base)
    if axes is None or len(axes) < 3 or axes[1] != POSITIONS:
        return None
    return _padding_without_mask((value.base,), is_causal=True)


def _padding_without_mask(parts: tuple[Value, ...], is_causal: bool = False) -> CallEvent | None:
    """The call that pads the ids of the model behind some values; None where a mask is on the way.

    Args:
        parts: The values to go back from.
        is_causal: Models that look both ways count as unknown.

    Returns:
        The tokenizer's call, where it certainly pads several rows.
    """
    waiting = list(parts)
    seen = {id(one) for one in waiting}
    padding: CallEvent | None = None
    while waiting:
        value = waiting.pop()
        if len(seen) > MAX_VALUES or _is_mask(value):
            return None
        if isinstance(value, Result) and _calls_model(value.call, is_causal):
            padding = padding or _padding_of_model_call(value.call)
            continue
        fresh = [one for one in parts_of_value(value) if id(one) not in seen]
        seen.update(map(id, fresh))
        waiting += fresh
    return padding


def _is_mask(value: Value) -> bool:
    """Does a value tell pads from tokens?"""
    if isinstance(value, Operation):
        return value.operator in COMPARISONS
    if isinstance(value, Attribute | Item):
        name = value.name if isinstance(value, Attribute) else constant_of(value.key)
        return isinstance(name, str) and "mask" in name
    if isinstance(value, Result):
        return value.call.method in MASKING_METHODS or value.call.named("torch.where")
    return False


def _calls_model(call: CallEvent, is_causal: bool) -> bool:
    """Is it the call of a model that was loaded?"""
    if call.method not in ("__call__", "forward") or call.receiver is None:
        return False
    ways = [way.call_that_gave_origin for way in lineages_back_to_origins(call.receiver)]
    loads = [load for load in ways if load is not None and load.named(*LOADS)]
    if not loads or len(loads) < len(ways):
        return False
    return not is_causal or not any(map(_is_encoder, loads))


def _is_encoder(load: CallEvent) -> bool:
    """Is a model loaded whose name is that of one that looks both ways?"""
    return bool(load.args) and ENCODERS.search(str(constant_of(load.args[0]))) is not None


def _padding_of_model_call(call: CallEvent) -> CallEvent | None:
    """The tokenizer's call that padded the ids of a model's call."""
    ids = call.keywords.get("input_ids") or call.argument(0, "input_ids")
    ids = call.keywords.get("**") if ids is None else ids
    if ids is None:
        return None
    call_events = [call_making_ids(option) for option in options_of_choice(ids)]
    if len(call_events) != 1 or call_events[0] is None:
        return None
    return call_events[0] if does_tokenizer_pad_several_rows(call_events[0]) else None
