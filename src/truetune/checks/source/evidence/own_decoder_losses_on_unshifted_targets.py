"""Finds losses of a decoder of one's own whose targets are the window of tokens that it reads.

How it works: what a cross entropy compares is followed back to the model's call; its input and the targets are compared
by how they are made: the same functions on the same values, with the same bounds of slices.

The trade-off: an autoencoder learns its input on purpose. So only files with a causal mask of their own are judged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Constant,
    Element,
    Item,
    Library,
    Operation,
    Result,
    Sequence,
    Slice,
    Value,
    parts_of_value,
    value_and_its_parts,
)

CAUSAL = re.compile(
    r"is_causal\s*=\s*True|subsequent_mask|\btril\b|\btriu\b|class \w*(?:GPT|Causal)\w*"
)
OWN_MODULE = re.compile(r"class \w+\([\w.]*Module\)")
RESHAPES = frozenset(("view", "reshape", "flatten", "contiguous", "to", "cuda", "long"))
MAX_VALUES = 300
MAX_DEPTH = 14


def has_own_decoder(module: Module) -> bool:
    """Does a file, or one that runs with it, define a module with a causal mask?"""
    texts = [part.text for part in module.self_and_files_run_together]
    return any(CAUSAL.search(one) for one in texts) and any(OWN_MODULE.search(one) for one in texts)


def losses_whose_targets_are_own_input(module: Module) -> Iterator[ast.AST]:
    """The cross entropies of a file whose targets are the model's own input, each place once."""
    if not has_own_decoder(module):
        return
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for loss in trace.calls("torch.nn.functional.cross_entropy"):
            if loss.node in seen or loss.home is not module:
                continue
            if _compares_input_with_itself(trace, loss):
                seen.add(loss.node)
                yield loss.node


def _compares_input_with_itself(trace: Trace, loss: CallEvent) -> bool:
    """Are the targets of a loss made as the ids are that an own model embeds for its scores?"""
    scores, target = loss.argument(0, "input"), loss.argument(1, "target")
    if scores is None or target is None:
        return False
    target = _without_reshapes(target)
    if not _is_token_slice_with_two_bounds(target) or _is_sliced_logits(scores):
        return False
    return any(_are_computed_the_same_way(one, target, 0) for one in _embedded_ids(trace, scores))


def _without_reshapes(value: Value) -> Value:
    """A tensor before it was viewed or moved."""
    for _ in range(MAX_DEPTH):
        if not isinstance(value, Result) or value.call.method not in RESHAPES:
            break
        value = value.call.receiver if value.call.receiver is not None else value
    return value


def _is_token_slice_with_two_bounds(value: Value) -> bool:
    """Is a value cut out of tokens: does a slice with two bounds make it?"""
    slices = [one for one in value_and_its_parts(value, MAX_VALUES) if isinstance(one, Slice)]
    return any(one.start is not None and one.stop is not None for one in slices)


def _is_sliced_logits(scores: Value) -> bool:
    """Are logits cut before they are compared?"""
    value = _without_reshapes(scores)
    return isinstance(value, Item)


def _embedded_ids(trace: Trace, scores: Value) -> Iterator[Value]:
    """The ids that an embedding layer of the scores' model looks up."""
    for one in value_and_its_parts(scores, MAX_VALUES):
        if isinstance(one, Result) and one.call.method == "__call__" and one.call.args:
            made = one.call.receiver.call if isinstance(one.call.receiver, Result) else None
            if made is not None and made.named("torch.nn.Embedding"):
                yield _without_reshapes(one.call.args[0])


def _are_computed_the_same_way(one: Value | None, other: Value | None, depth: int) -> bool:
    """Are two values made by the same functions of the same values?"""
    if one is other:
        return True
    if one is None or other is None or depth > MAX_DEPTH:
        return False
    if isinstance(one, Slice) and isinstance(other, Slice):
        pairs = [(one.start, other.start), (one.stop, other.stop), (one.step, other.step)]
    elif _do_values_match_apart_from_parts(one, other):
        parts, others = list(parts_of_value(one)), list(parts_of_value(other))
        if len(parts) != len(others):
            return False
        pairs = list(zip(parts, others, strict=True))
    else:
        return False
    return all(_are_computed_the_same_way(first, second, depth + 1) for first, second in pairs)


def _do_values_match_apart_from_parts(one: Value, other: Value) -> bool:
    """Are two values of one kind and the same apart from their parts: one number, or results of one function?"""
    kind = _number_or_function_name_of_value(one)
    return (
        type(one) is type(other)
        and kind is not None
        and kind == _number_or_function_name_of_value(other)
    )


def _number_or_function_name_of_value(value: Value) -> object:
    """What a value is apart from its parts: a number, the name of a function or an attribute; None if not known."""
    if isinstance(value, Constant):
        return (value.value,)
    if isinstance(value, Library | Attribute):
        return value.name
    if isinstance(value, Operation):
        return value.operator
    if isinstance(value, Result):
        return (value.call.names, value.call.method)
    return "parts" if isinstance(value, Item | Element | Sequence) else None
