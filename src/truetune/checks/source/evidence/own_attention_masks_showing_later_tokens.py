"""Finds masks of own attention that let a token see later ones, by computing the mask for pairs of positions.

How it works: a causal mask is made of few functions (`tril`, `triu`, `ones`, comparisons of `arange`, `masked_fill`),
so its entry for a query and a key depends on their distance alone. The entry is computed for some distances, and the
place that takes the mask says what it means: True is visible for `scaled_dot_product_attention`, and hidden for
`nn.MultiheadAttention` and `masked_fill(mask, -inf)`; numbers are added to the scores.

The trade-off: only a mask that tells later from earlier positions is judged, for it is meant to be causal. What is not
understood on the way has no entry, and then nothing is said.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace, is_constant_none
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Constant,
    Item,
    Library,
    Operation,
    Result,
    Sequence,
    Slice,
    Value,
    value_and_its_parts,
)

DISTANCES = (-99, -1, 0, 1, 2, 99)
"""Places of a key behind its query; negative ones are earlier"""
HIDDEN_BELOW = -1e3
"""Scores that are lowered by more than this count as hidden; -1e4 and -inf are usual"""
MAX_DEPTH = 20
"""Steps back from a mask to what it is made of. Chosen: masks that scripts write out have under ten"""
FILLS = ("masked_fill", "masked_fill_")
MAX_VALUES = 300
"""Values behind a loss; models that a script writes out have some hundred"""
MAX_STEPS = 4
"""Operations between the masked scores and their softmax"""
ATTENTION = ("torch.nn.functional.scaled_dot_product_attention",)
MULTIHEAD_LAYERS = ("torch.nn.MultiheadAttention",)
ENCODER_LAYERS = ("torch.nn.TransformerEncoder", "torch.nn.TransformerEncoderLayer")
KEEPING = frozenset(
    ("bool", "to", "float", "unsqueeze", "view", "expand", "cuda", "cpu", "type", "half", "bfloat16", "repeat",
     "contiguous", "int", "long", "clone", "type_as", "squeeze", "detach", "byte")
)  # fmt: skip
"""Methods that leave the entries of a mask as they are, but for their type or shape"""
BOOLEAN_MAKERS = frozenset(("bool", "logical_not", "isinf", "ne", "eq", "gt", "lt", "ge", "le"))
NUMBER_MAKERS = frozenset(("float", "double", "half", "bfloat16", "int", "long", "byte"))
NUMBER_TYPES = frozenset((
    "torch.float", "torch.float32", "torch.float64", "torch.float16", "torch.half", "torch.bfloat16",
    "torch.int", "torch.int32", "torch.int64", "torch.long", "torch.uint8",
))  # fmt: skip
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
COMPARISON_METHODS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
INFINITIES = ("torch.inf", "math.inf", "numpy.inf")
ENTRIES_OF_NEW_TENSORS = {
    "ones": 1.0,
    "ones_like": 1.0,
    "new_ones": 1.0,
    "zeros": 0.0,
    "zeros_like": 0.0,
    "new_zeros": 0.0,
}
"""Functions and methods that make a tensor of one number -> that number"""
FULL_TENSORS = ("full", "new_full", "full_like")
TRIANGLES = ("tril", "triu")
CHANGES = KEEPING.union(TRIANGLES, FILLS, COMPARISON_METHODS, ("logical_not",))
"""Functions and methods that make a mask of a tensor, and whose entries are understood"""


Leak = Literal["later", "reversed", "added", "none"]
"""Later tokens are visible too; they alone are; truth values are added to the scores; no mask is given"""


class LeakyMask(NamedTuple):
    """A mask of own attention by which tokens see later ones."""

    node: ast.AST
    how: Leak


def leaky_masks(module: Module) -> Iterator[LeakyMask]:
    """The masks of a file by which a token of its own attention sees later ones, each place once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        buffers = _buffers_by_name(trace)
        for call in trace.all_calls:
            if call.home is not module or call.node in seen:
                continue
            if call.method in FILLS and not _is_later_given_to_softmax(
                trace, call.result, MAX_STEPS
            ):
                continue
            leaky_mask = _leak_of_call(call, buffers) or _leak_without_mask(trace, call)
            if leaky_mask is not None:
                seen.add(call.node)
                yield leaky_mask


def attention_places(module: Module) -> Iterator[ast.AST]:
    """The places of a file that take a mask of own attention."""
    yield from (call.node for call in module.calls(*ATTENTION, *MULTIHEAD_LAYERS, *ENCODER_LAYERS))
    yield from (call.node for call in module.methods(*FILLS))


def _buffers_by_name(trace: Trace) -> dict[str, Value]:
    """The name of each buffer that a module registers -> its tensor; only names that stand for one."""
    buffers: dict[str, Value] = {}
    doubled: set[str] = set()
    for call in trace.methods("register_buffer"):
        name, tensor = constant_of(call.argument(0, "name")), call.argument(1, "tensor")
        if isinstance(name, str) and tensor is not None:
            if name in buffers and buffers[name].node is not tensor.node:
                doubled.add(name)
            buffers[name] = tensor
    return {name: tensor for name, tensor in buffers.items() if name not in doubled}


def _leak_of_call(call: CallEvent, buffers: dict[str, Value]) -> LeakyMask | None:
    """The leak of a call that takes a mask; None where it takes none, or the mask is causal."""
    mask, is_seen_if_true = _mask_and_is_true_visible(call)
    entries = None if mask is None else _entries_by_distance(mask, buffers)
    if mask is None or entries is None:
        return None
    if _is_boolean(mask) or call.method in FILLS:
        how = _leak_of_visible_places([bool(entry) == is_seen_if_true for entry in entries])
    else:
        how = _leak_of_added_numbers(entries)
    return None if how is None else LeakyMask(call.node, how)


def _entries_by_distance(mask: Value, buffers: dict[str, Value]) -> list[float] | None:
    """The entry of a mask for each of `DISTANCES`; None where one of them is not understood."""
    computed = [_mask_entry_at_distance(mask, distance, buffers, 0) for distance in DISTANCES]
    entries = [entry for entry in computed if entry is not None]
    return entries if len(entries) == len(computed) else None


def _leak_of_visible_places(visible: list[bool]) -> Leak | None:
    """How a mask leaks, by which of `DISTANCES` it shows; None where it hides all later places, or nothing."""
    before, after = visible[:3], visible[3:]
    if all(visible) or not any(after):
        return None
    return "later" if any(before) else "reversed"


def _leak_of_added_numbers(entries: list[float]) -> Leak | None:
    """How a mask leaks whose entries are added to the scores: numbers that hide nothing are truth values added."""
    visible = [entry > HIDDEN_BELOW for entry in entries]
    if all(visible) and len(set(entries)) > 1:
        return "added"
    return _leak_of_visible_places(visible)


def _is_later_given_to_softmax(trace: Trace, value: Value, steps: int) -> bool:
    """Does a softmax take a value, perhaps after some more operations?"""
    for use in trace.uses(value):
        if isinstance(use, CallEvent):
            if "softmax" in (use.method or (use.names[0] if use.names else "")):
                return True
            use_value: Value = use.result
        elif isinstance(use, Value):
            use_value = use
        else:
            continue
        if steps > 0 and _is_later_given_to_softmax(trace, use_value, steps - 1):
            return True
    return False


def _mask_and_is_true_visible(call: CallEvent) -> tuple[Value | None, bool]:
    """The mask that a call takes, and whether True in it means visible."""
    if call.named(*ATTENTION):
        return _mask_of_attention_function(call), True
    if call.method == "__call__":
        return _mask_of_layer(call), False
    if call.method in FILLS:
        return _mask_of_fill(call), False
    return None, True


def _mask_of_attention_function(call: CallEvent) -> Value | None:
    """The mask of `scaled_dot_product_attention`; None where it hides later places by itself."""
    if constant_of(call.argument(5, "is_causal")) is True:
        return None
    return call.argument(3, "attn_mask")


def _mask_of_layer(call: CallEvent) -> Value | None:
    """The mask that a call gives to a layer of attention, or to an encoder."""
    made = call.receiver.call if isinstance(call.receiver, Result) else None
    if made is None:
        return None
    if made.named(*MULTIHEAD_LAYERS):
        return call.argument(5, "attn_mask")
    if made.named(*ENCODER_LAYERS):
        return call.keywords.get("src_mask") or call.argument(1, "mask")
    return None


def _mask_of_fill(call: CallEvent) -> Value | None:
    """The mask of `scores.masked_fill(mask, -inf)`; None where something else is filled."""
    if len(call.args) != 2:
        return None
    fill = _number(call.args[1])
    is_hiding = fill is not None and fill < HIDDEN_BELOW
    return call.args[0] if is_hiding and _contains_matrix_product(call.receiver) else None


def _contains_matrix_product(value: Value | None) -> bool:
    """Is there a product of matrices in a value, as that of queries and keys?"""
    waiting = [value] if value is not None else []
    for _ in range(MAX_DEPTH):
        if not waiting:
            return False
        one = waiting.pop()
        if isinstance(one, Operation):
            if one.operator == "@":
                return True
            waiting += one.operands
        elif isinstance(one, Result):
            if one.call.named("torch.matmul", "torch.bmm", "torch.einsum") or one.call.method in (
                "matmul",
                "bmm",
            ):
                return True
            waiting += [one.call.receiver] if one.call.receiver is not None else []
    return False


def _is_boolean(mask: Value, depth: int = 0) -> bool:
    """Is a mask one of truth values, by how it is made?"""
    if isinstance(mask, Operation):
        if mask.operator in COMPARISONS:
            return True
        return mask.operator in ("~", "not", "&", "|") and _is_boolean(mask.operands[0], depth + 1)
    if isinstance(mask, Item):
        return depth < MAX_DEPTH and _is_boolean(mask.base, depth + 1)
    if not isinstance(mask, Result) or depth > MAX_DEPTH:
        return False
    if _gives_truth_values(mask.call):
        return True
    if _gives_numbers(mask.call):
        return False
    inner = _tensor_that_mask_call_is_made_on(mask.call)
    return inner is not None and _is_boolean(inner, depth + 1)


def _gives_numbers(call: CallEvent) -> bool:
    """Does a call turn its tensor into numbers, by its name or the type that it names?"""
    cast = call.args[0] if call.method in ("to", "type") and call.args else None
    dtype = call.keywords.get("dtype") or cast
    is_other_type = isinstance(dtype, Library) and dtype.name in NUMBER_TYPES
    return is_other_type or call.method in NUMBER_MAKERS


def _gives_truth_values(call: CallEvent) -> bool:
    """Does a call give truth values, by the type that it names or by its own name?"""
    cast = call.args[0] if call.method == "to" and call.args else None
    dtype = call.keywords.get("dtype") or cast
    is_cast = isinstance(dtype, Library) and dtype.name == "torch.bool"
    return is_cast or call.method in BOOLEAN_MAKERS


def _tensor_that_mask_call_is_made_on(call: CallEvent) -> Value | None:
    """The tensor that a call makes a mask of, also one of another type; None for calls that are not understood."""
    is_kept = call.method in KEEPING or call.method in TRIANGLES
    if not is_kept and not call.named("torch.tril", "torch.triu", "torch.logical_not"):
        return None
    return call.receiver or (call.args[0] if call.args else None)


def _number(value: Value | None) -> float | None:
    """The number that a value is, also an infinite one."""
    if isinstance(value, Constant):
        return float(value.value) if isinstance(value.value, int | float) else None
    if isinstance(value, Library):
        return math.inf if value.name in INFINITIES else None
    if isinstance(value, Operation) and len(value.operands) == 1:
        inner = _number(value.operands[0])
        return None if inner is None else -inner
    if isinstance(value, Result):
        return _infinity_of_text(value.call)
    return _lowest_of_type(value) if isinstance(value, Attribute) else None


def _infinity_of_text(call: CallEvent) -> float | None:
    """The number that `float("-inf")` gives; None for any other call."""
    if not call.named("float") or not call.args:
        return None
    text = constant_of(call.args[0])
    return float(text) if text in ("-inf", "inf", "-Infinity") else None


def _lowest_of_type(value: Attribute) -> float | None:
    """A number as low as `torch.finfo(dtype).min`; None for any other attribute."""
    is_of_type = isinstance(value.base, Result) and value.base.call.named("torch.finfo")
    return -3e38 if value.name == "min" and is_of_type else None


def _mask_entry_at_distance(
    value: Value | None, distance: int, buffers: dict[str, Value], depth: int
) -> float | None:
    """The entry of a mask for a key so many places behind its query; None where it is not understood."""
    if value is None or depth > MAX_DEPTH:
        return None
    number = _number(value)
    if number is not None:
        return number
    if isinstance(value, Attribute):
        return _mask_entry_at_distance(buffers.get(value.name), distance, buffers, depth + 1)
    if isinstance(value, Item):
        return _entry_of_index(value, distance, buffers, depth)
    if isinstance(value, Operation):
        return _entry_of_operation(value, distance, buffers, depth)
    return (
        _entry_of_call(value.call, distance, buffers, depth) if isinstance(value, Result) else None
    )


def _entry_of_index(
    value: Item, distance: int, buffers: dict[str, Value], depth: int
) -> float | None:
    """The entry of `mask[:t, :t]`, and of `arange(t)[:, None]`: the place of a query or of a key."""
    keys = value.key.items if isinstance(value.key, Sequence) else [value.key]
    places = _position_of_query_or_key_in_arange(value.base, keys, distance)
    if places is not None:
        return places
    is_plain = all(
        is_constant_none(key) or (isinstance(key, Slice) and is_slice_bound_at_beginning(key.start))
        for key in keys
    )
    return _mask_entry_at_distance(value.base, distance, buffers, depth + 1) if is_plain else None


def is_slice_bound_at_beginning(bound: Value | None) -> bool:
    """Does a slice begin at the beginning?"""
    return bound is None or constant_of(bound) in (0, None)


def _position_of_query_or_key_in_arange(
    base: Value, keys: list[Value], distance: int
) -> float | None:
    """The number of a query (0) or of its key, of `arange(t)[:, None]` and `arange(t)[None, :]`."""
    if not isinstance(base, Result) or not base.call.named("torch.arange", "numpy.arange"):
        return None
    new = [number for number, key in enumerate(keys) if is_constant_none(key)]
    if not new or len(keys) < 2:
        return None
    return 0.0 if new[-1] == len(keys) - 1 else float(distance)


def _entry_of_operation(
    value: Operation, distance: int, buffers: dict[str, Value], depth: int
) -> float | None:
    """The entry of a comparison, of `~mask`, `1 - mask`, `a & b`, `mask * -1e9`."""
    entries = [_mask_entry_at_distance(one, distance, buffers, depth + 1) for one in value.operands]
    known = [entry for entry in entries if entry is not None]
    if len(known) < len(entries):
        return None
    if len(known) == 1:
        return _mask_entry_of_unary_operation(value.operator, known[0])
    return _mask_entry_of_binary_operation(value.operator, known[0], known[1])


def _mask_entry_of_unary_operation(sign: str, entry: float) -> float | None:
    """The entry of `~mask`, `not mask` and `-mask`."""
    if sign in ("~", "not"):
        return float(not entry)
    return -entry if sign == "-" else None


def _mask_entry_of_binary_operation(sign: str, one: float, other: float) -> float | None:
    """The entry of two masks that are compared or joined; None where the operation is not known."""
    if sign in COMPARISONS:
        return float(COMPARISONS[sign](one, other))
    return JOINS[sign](one, other) if sign in JOINS else None


def _product_with_zero_times_infinity_as_zero(one: float, other: float) -> float:
    """The product of two entries: in a mask, 0 times minus infinity is meant to be 0; torch makes nan of it."""
    return 0.0 if 0.0 in (one, other) else one * other


JOINS: dict[str, Callable[[float, float], float]] = {
    "-": operator.sub,
    "+": operator.add,
    "*": _product_with_zero_times_infinity_as_zero,
    "&": lambda one, other: float(bool(one) and bool(other)),
    "|": lambda one, other: float(bool(one) or bool(other)),
}
"""Operations that join two masks, or a mask and a number"""


def _entry_of_call(
    call: CallEvent, distance: int, buffers: dict[str, Value], depth: int
) -> float | None:
    """The entry of what a function of masks gives."""
    name = call.method or (call.names[0].rpartition(".")[2] if call.names else "")
    if name == "generate_square_subsequent_mask":
        return -math.inf if distance > 0 else 0.0
    if name in ENTRIES_OF_NEW_TENSORS:
        return ENTRIES_OF_NEW_TENSORS[name]
    if name in FULL_TENSORS:
        return _number(call.argument(1, "fill_value"))
    if name in CHANGES:
        return _entry_of_changed_tensor(call, name, distance, buffers, depth + 1)
    return None


def _entry_of_changed_tensor(
    call: CallEvent, name: str, distance: int, buffers: dict[str, Value], depth: int
) -> float | None:
    """The entry of what a function or method makes of a tensor; None where it is not known."""
    tensor, rest = _tensor_and_other_arguments(call)
    if tensor is None:
        return None
    entry = _mask_entry_at_distance(tensor, distance, buffers, depth)
    if name in KEEPING:
        return entry
    if name in TRIANGLES:
        return _entry_of_triangle(call, name, rest, entry, distance)
    if name == "logical_not":
        return None if entry is None else float(not entry)
    if name in FILLS and len(rest) == 2:
        chosen = _mask_entry_at_distance(rest[0], distance, buffers, depth)
        return _entry_of_fill(chosen, _number(rest[1]), entry)
    if name in COMPARISON_METHODS and len(rest) == 1:
        other = _mask_entry_at_distance(rest[0], distance, buffers, depth)
        return _entry_of_comparison(COMPARISON_METHODS[name], entry, other)
    return None


def _tensor_and_other_arguments(call: CallEvent) -> tuple[Value | None, list[Value]]:
    """The tensor that a function or method works on, and its other positional arguments."""
    if call.method is not None:
        return call.receiver, list(call.args)
    return (call.args[0] if call.args else None), list(call.args[1:])


def _entry_of_fill(chosen: float | None, filled: float | None, kept: float | None) -> float | None:
    """The entry of `masked_fill`: the number filled in where the mask chooses it, else the one that was there."""
    if chosen is None:
        return None
    return filled if chosen else kept


def _entry_of_comparison(sign: str, one: float | None, other: float | None) -> float | None:
    """The entry of `a.ge(b)` and the like; None where one side is not known."""
    if one is None or other is None:
        return None
    return float(COMPARISONS[sign](one, other))


def _entry_of_triangle(
    call: CallEvent, name: str, rest: list[Value], entry: float | None, distance: int
) -> float | None:
    """The entry of `tril(x, diagonal)` and `triu(x, diagonal)`."""
    given = call.keywords.get("diagonal") or (rest[0] if rest else None)
    diagonal = 0 if given is None else constant_of(given)
    if not isinstance(diagonal, int):
        return None
    is_kept = distance <= diagonal if name == "tril" else distance >= diagonal
    return entry if is_kept else 0.0


def _leak_without_mask(trace: Trace, call: CallEvent) -> LeakyMask | None:
    """The leak of an encoder layer that is called without a mask, and learns the next token."""
    made = call.receiver.call if isinstance(call.receiver, Result) else None
    is_encoder = call.method == "__call__" and made is not None and made.named(*ENCODER_LAYERS)
    if not is_encoder or call.is_open or len(call.args) > 1:
        return None
    if {"mask", "src_mask", "is_causal"} & set(call.keywords):
        return None
    return LeakyMask(call.node, "none") if _learns_next_token(trace, call) else None


def _learns_next_token(trace: Trace, call: CallEvent) -> bool:
    """Does a cross entropy compare what a layer gave for `ids[:, :-1]` with `ids[:, 1:]`?"""
    for loss in trace.calls("torch.nn.functional.cross_entropy"):
        scores, target = loss.argument(0, "input"), loss.argument(1, "target")
        if scores is None or target is None:
            continue
        inputs = list(value_and_its_parts(scores, MAX_VALUES))
        is_of_layer = any(one is call.result for one in inputs)
        if is_of_layer and _is_shifted_by_one(inputs, target):
            return True
    return False


def _is_shifted_by_one(inputs: list[Value], target: Value) -> bool:
    """Do inputs hold `ids[:, :-1]` of the same ids of which a target holds `ids[:, 1:]`?"""
    later = {
        id(one.base)
        for one in value_and_its_parts(target, MAX_VALUES)
        if isinstance(one, Item) and _is_slice(one, 1, None)
    }
    return any(
        id(one.base) in later
        for one in inputs
        if isinstance(one, Item) and _is_slice(one, None, -1)
    )


def _is_slice(value: Item, start: int | None, stop: int | None) -> bool:
    """Is a value `x[:, start:stop]`?"""
    keys = value.key.items if isinstance(value.key, Sequence) else []
    if len(keys) != 2 or not isinstance(keys[1], Slice):
        return False
    one, other = keys[1].start, keys[1].stop
    bounds = [None if bound is None else constant_of(bound) for bound in (one, other)]
    return bounds == [start, stop]
