"""Finds attention masks that a script builds for a decoder and that let tokens see later ones, in
its symbolic run.

How it works: in the symbolic run of a script, a mask of one's own is made by comparing a vector
with itself (`seg[:, :, None] == seg[:, None, :]`), by an outer product of the padding mask, or by
blocks along the diagonal. From each place that takes a mask (`attention_mask=` of a model, a
collator's column, `attn_mask=` of PyTorch's attention, `create_block_mask`), the walk goes back
through operators, tensor methods, and what is written into the tensor in place, and searches for a
condition that orders two positions: `tril`, `triu`, `<=`, a name with "causal".

The trade-off: whatever is not understood on the way (a function of another library, an unknown
value) may hold that condition, and then nothing is said. Encoders, prefix models and models trained
to look both ways are left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.does_script_train_model import run_trains_model
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, StoreEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Constant,
    Element,
    Function,
    Item,
    Mapping,
    Operation,
    Partial,
    Result,
    Sequence,
    Slice,
    Unknown,
    Value,
    parts_of_value,
)

DECODER = re.compile(r"ForCausalLM\b|LMHeadModel\b|FastLanguageModel\b|FastModel\b")
"""A decoder of transformers or unsloth"""
OWN_DECODER = re.compile(r"class \w*(?:Causal|GPT)\w*\(|\[\s*(?::\s*,|\.\.\.\s*,)\s*1\s*:")
"""A decoder of one's own: a class that is called so, or labels that are shifted by one"""
ORDER_IN_TEXT = re.compile(r"tril|triu|causal_?mask|is_causal|make_causal")
"""What may make a mask of a collator causal later on"""
BOTH_WAYS = re.compile(
    r"ForMaskedLM|ForSeq2SeqLM|ForConditionalGeneration|TokenClassification|SequenceClassification|bi-?directional"
    r"|prefix.?lm|llm2vec|mntp|diffusion|is_decoder\s*=\s*False",
    re.I,
)
"""Models that may look both ways"""
MASK_NAMES = ("attention_mask", "attn_mask", "block_mask")
ORDERS = frozenset(("<", "<=", ">", ">="))
ORDER_CALLS = frozenset(
    ("tril", "triu", "tril_", "triu_", "ge", "gt", "le", "lt", "tri", "greater", "less",
     "greater_equal", "less_equal", "cummax", "cumsum", "tril_indices", "triu_indices", "sort", "searchsorted")
)  # fmt: skip
CAUSAL = re.compile(r"causal|tril|triu|lower.?tri|upper.?tri", re.I)
VIEWS = frozenset(
    ("unsqueeze", "view", "reshape", "expand", "expand_as", "contiguous", "to", "long", "int", "bool", "float",
     "clone", "transpose", "permute", "repeat", "half", "bfloat16", "type", "cuda", "detach", "squeeze", "mT",
     "astype", "expand_dims")
)  # fmt: skip
"""Methods whose result has the numbers of what they are called on"""
TENSOR_METHODS = VIEWS | frozenset(
    ("masked_fill", "masked_fill_", "fill_", "mul", "mul_", "add", "add_", "sub", "eq", "ne", "logical_and",
     "logical_and_", "logical_or", "logical_not", "new_zeros", "new_ones", "new_full", "copy_", "where", "equal",
     "not_equal", "outer", "__call__", "size", "append", "stack", "cat", "pad", "repeat_interleave", "T")
)  # fmt: skip
IN_PLACE = ("append", "extend", "copy_")
MAX_VALUES = 300
"""Values that a mask is made of; masks have some twenty"""
SIZES_AND_TYPES = frozenset(("shape", "dtype", "device", "ndim", "min", "max"))
"""Attributes that tell nothing of a mask's entries"""


class OpenMask(NamedTuple):
    """A mask that lets tokens see later ones."""

    node: ast.AST
    what: str
    """What it allows: `tokens of the same document`"""
    taken_by: ast.AST


class _MaskParts(NamedTuple):
    """What a mask is made of, as far as it is understood."""

    own: tuple[ast.AST, str] | None
    """The place that makes it a mask over pairs of positions"""
    is_causal: bool
    """It holds a condition on the order of positions, or may hold one"""


def masks_without_causality(module: Module) -> Iterator[OpenMask]:
    """The places of a file that make a mask without a causal condition, each once."""
    if not any(
        name in part.text for part in module.self_and_files_run_together for name in MASK_NAMES
    ):
        return
    if _pattern_is_in_files(module, BOTH_WAYS):
        return
    seen: set[ast.AST] = set()
    for trace in filter(run_trains_model, traces_of_scripts_that_reach_file(module)):
        for open_mask in _noncausal_masks_of_run(module, trace):
            is_own = module.home(open_mask.node) is module and module.holds(open_mask.node)
            if is_own and open_mask.node not in seen:
                seen.add(open_mask.node)
                yield open_mask


def _noncausal_masks_of_run(module: Module, trace: Trace) -> Iterator[OpenMask]:
    """The masks over pairs of positions without a causal condition that a run gives to its models."""
    for mask, taker in (
        *_masks_given_to_decoders(module, trace),
        *_masks_given_to_attention_functions(module, trace),
    ):
        parts = _parts_of_mask(trace, mask)
        if parts.own is not None and not parts.is_causal:
            node, what = parts.own
            yield OpenMask(node, what, taker)


def _pattern_is_in_files(module: Module, pattern: re.Pattern[str]) -> bool:
    """Does a pattern stand in a file, or in one that runs with it?"""
    return any(pattern.search(part.text) for part in module.self_and_files_run_together)


def _masks_given_to_attention_functions(
    module: Module, trace: Trace
) -> Iterator[tuple[Value, ast.AST]]:
    """The masks that a run gives to FlexAttention and to PyTorch's attention, each with the place
    that takes it.
    """
    if not _pattern_is_in_files(module, DECODER) and not _pattern_is_in_files(module, OWN_DECODER):
        return
    for call in trace.all_calls:
        if call.named("*create_block_mask", "*flex_attention.create_mask"):
            mask = call.argument(0, "mask_mod")
        elif call.named("*scaled_dot_product_attention") and (
            constant_of(call.argument(5, "is_causal")) is not True
        ):
            mask = call.argument(3, "attn_mask")
        else:
            mask = None
        if mask is not None:
            yield mask, call.node


def _masks_given_to_decoders(module: Module, trace: Trace) -> Iterator[tuple[Value, ast.AST]]:
    """The masks that a run gives to decoders of transformers, or puts into its rows, each with the
    place.
    """
    if not _pattern_is_in_files(module, DECODER):
        return
    for call in trace.all_calls:
        if "attention_mask" in call.keywords and not _runs_model_with_encoder(module, call.node):
            yield call.keywords["attention_mask"], call.node
    # A loop may complete the mask of a row before the model gets it.
    if _pattern_is_in_files(module, ORDER_IN_TEXT):
        return
    for value in trace.values:
        if not isinstance(value, Mapping) or value.node is None:
            continue
        if "attention_mask" in value.entries:
            yield value.entries["attention_mask"], value.node
    for store in trace.stores:
        if _stored_key(store) == "attention_mask":
            yield store.value, store.node


def _runs_model_with_encoder(module: Module, node: ast.AST) -> bool:
    """Does a call run a model that the file loads and that is no decoder: an encoder beside one?"""
    loaded = module.flow.producing_call(node.func) if isinstance(node, ast.Call) else None
    is_loaded = loaded is not None and loaded.named("transformers.*.from_pretrained")
    return loaded is not None and is_loaded and not DECODER.search(" ".join(loaded.names))


def _stored_key(store: StoreEvent) -> object:
    """The name of an item or attribute that is set."""
    return store.key if isinstance(store.key, str) else constant_of(store.key)


def _parts_of_mask(trace: Trace, mask: Value) -> _MaskParts:
    """What a mask is made of."""
    own: tuple[ast.AST, str] | None = None
    waiting, seen = [mask], {id(mask)}
    while waiting:
        value = waiting.pop()
        if len(seen) > MAX_VALUES or _may_be_order_condition(value):
            return _MaskParts(None, True)
        made = _node_making_pairwise_mask(value)
        if made is not None:
            own = own or made
            continue
        for part in (*_source_values(value), *_values_written_into(trace, value)):
            block = _diagonal_block_of_store(part) if isinstance(part, StoreEvent) else None
            own = own or block
            values = (part.value,) if isinstance(part, StoreEvent) else (part,)
            fresh = [one for one in values if id(one) not in seen]
            seen.update(map(id, fresh))
            waiting += fresh
    return _MaskParts(own, False)


def _may_be_order_condition(value: Value) -> bool:
    """Is a value a condition on the order of positions, or something that may hold one?"""
    if isinstance(value, Operation):
        return value.operator in ORDERS or value.operator == "-"
    if isinstance(value, Result):
        return _call_may_order_positions(value.call)
    if isinstance(value, Function):
        return _mask_function_may_order_positions(value)
    if isinstance(value, Attribute | Item):
        key = value.name if isinstance(value, Attribute) else constant_of(value.key)
        return isinstance(key, str) and CAUSAL.search(key) is not None
    return isinstance(value, Unknown | Partial)


def _call_may_order_positions(call: CallEvent) -> bool:
    """Does a call order positions, or is it one whose result is not known?"""
    last = _called_name(call)
    if last in ORDER_CALLS or CAUSAL.search(last):
        return True
    if call.named("torch.*", "numpy.*", "range", "len", "list", "jax.numpy.*"):
        return False
    return call.method not in TENSOR_METHODS


def _called_name(call: CallEvent) -> str:
    """The last name of what is called: `outer` of `torch.outer(...)` and of `mask.outer(...)`;
    empty without one.
    """
    return call.method or (call.names[0].rpartition(".")[2] if call.names else "")


def _mask_function_may_order_positions(function: Function) -> bool:
    """Does a function that judges pairs of positions (`mask_mod`) order them, or do more than
    compare?
    """
    for node in ast.walk(function.definition):
        if isinstance(node, ast.Compare) and any(
            isinstance(sign, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for sign in node.ops
        ):
            return True
        if isinstance(node, ast.Call) or (isinstance(node, ast.Name) and CAUSAL.search(node.id)):
            return True
    return CAUSAL.search(function.name) is not None


def _source_values(value: Value) -> Iterator[Value]:
    """The values that the entries of a value come from; sizes and types are none."""
    if isinstance(value, Attribute):
        if value.name not in SIZES_AND_TYPES:
            yield value.base
        return
    if isinstance(value, Item):
        # A column of a batch is what the rows hold.
        if not isinstance(constant_of(value.key), str):
            yield value.base
        return
    if isinstance(value, Element):
        return
    if isinstance(value, Result):
        yield from _source_values_of_call(value.call)
        return
    yield from parts_of_value(value)


def _source_values_of_call(call: CallEvent) -> Iterator[Value]:
    """The values that the entries of a call's result come from; none of `torch.zeros(...)`, which
    is given sizes alone.
    """
    is_new = call.named(*(f"*.{name}" for name in ("zeros", "ones", "full", "empty", "finfo")))
    if is_new or call.method in ("new_zeros", "new_ones", "size"):
        return
    if call.receiver is not None:
        yield call.receiver
    yield from call.args
    sizes = {"size", "dtype", "device", "shape"}
    yield from (one for name, one in call.keywords.items() if name not in sizes)


def _values_written_into(trace: Trace, value: Value) -> Iterator[Value | StoreEvent]:
    """What is written into a tensor in place."""
    for use in trace.uses(value):
        if isinstance(use, StoreEvent) and use.base is value and not isinstance(use.key, str):
            yield use
            yield use.key
        elif isinstance(use, CallEvent) and use.receiver is value:
            method = use.method or ""
            if method.endswith("_") or method in IN_PLACE:
                yield use.result
                yield from use.args
        elif isinstance(use, Item):
            # `mask[a:b].masked_fill_(...)`, `mask[0][a:b] = 1`
            yield from _values_written_into_view(trace, use)


def _values_written_into_view(trace: Trace, view: Item) -> Iterator[Value | StoreEvent]:
    """What is written into a part of a tensor."""
    for use in trace.uses(view):
        if isinstance(use, StoreEvent) and use.base is view:
            yield use
        elif isinstance(use, CallEvent) and use.receiver is view:
            if (use.method or "").endswith("_"):
                yield use.result
                yield from use.args


def _diagonal_block_of_store(store: StoreEvent) -> tuple[ast.AST, str] | None:
    """The place and description of a store of a whole block along the diagonal: `mask[a:b, a:b] =
    1`; None for any other store.
    """
    key = store.key
    if not isinstance(key, Sequence) or len(key.items) < 2:
        return None
    rows, columns = key.items[-2:]
    if not (isinstance(rows, Slice) and isinstance(columns, Slice)):
        return None
    is_block = _are_same_bound(rows.start, columns.start) and _are_same_bound(
        rows.stop, columns.stop
    )
    is_whole = rows.stop is not None or rows.start is not None
    if is_block and is_whole and isinstance(store.value, Constant):
        return store.node, "all tokens of a block"
    return None


def _are_same_bound(one: Value | None, other: Value | None) -> bool:
    """Are two bounds of slices the same value?"""
    if one is other:
        return True
    if isinstance(one, Constant) and isinstance(other, Constant):
        return bool(one.value == other.value)
    # The same sum written twice is two values.
    if isinstance(one, Operation) and isinstance(other, Operation):
        pairs = zip(one.operands, other.operands, strict=False)
        return one.operator == other.operator and all(_are_same_bound(*pair) for pair in pairs)
    return False


def _node_making_pairwise_mask(value: Value) -> tuple[ast.AST, str] | None:
    """What makes a value a mask over pairs of positions: a vector against itself."""
    if isinstance(value, Function):
        return _pairwise_mask_function(value)
    sides: tuple[Value, ...] = ()
    sign = ""
    if isinstance(value, Operation) and len(value.operands) == 2:
        sides, sign = value.operands, value.operator
    elif isinstance(value, Result):
        sides, sign = _sides_of_pairwise_call(value.call)
    if len(sides) != 2 or value.node is None:
        return None
    if sign in ("==", "!="):
        what = "all tokens of the same document"
    elif sign in ("&", "*", "and"):
        what = "all tokens that are not pads"
    else:
        return None
    return (value.node, what) if _are_one_vector(*sides) else None


def _sides_of_pairwise_call(call: CallEvent) -> tuple[tuple[Value, ...], str]:
    """The two sides of a comparison or product that is written as a call."""
    if call.named("numpy.equal.outer", "torch.outer", "numpy.outer") and len(call.args) == 2:
        # The outer form needs no views: the same vector twice.
        return call.args, "==" if call.named("*.equal.outer") else "*"
    signs = {"eq": "==", "equal": "==", "ne": "!=", "not_equal": "!=", "logical_and": "&"}
    last = _called_name(call)
    sides = call.inputs if call.named("torch.*", "numpy.*") or call.method else ()
    return (sides[:2], signs[last]) if last in signs else ((), "")


def _are_one_vector(one: Value, other: Value) -> bool:
    """Are these two views of one vector, or the same vector in an outer product?"""
    base, other_base = _base_of_view(one), _base_of_view(other)
    return base is other_base and (one is not base or other is not other_base or one is other)


def _base_of_view(value: Value) -> Value:
    """The tensor that a value is a view of, with other axes."""
    for _ in range(MAX_VALUES):
        if isinstance(value, Item) and _is_new_axis(value.key):
            value = value.base
        elif isinstance(value, Result) and value.call.method in VIEWS and value.call.receiver:
            value = value.call.receiver
        elif isinstance(value, Result) and value.call.named("torch.unsqueeze", "numpy.expand_dims"):
            value = value.call.args[0] if value.call.args else value
        else:
            break
    return value


def _is_new_axis(key: Value) -> bool:
    """Does an index add an axis: `[:, None]`, `[:, np.newaxis, :]`?"""
    parts = key.items if isinstance(key, Sequence) else [key]
    return any(
        (isinstance(part, Constant) and part.value is None)
        or getattr(part, "name", "") == "numpy.newaxis"
        for part in parts
    )


def _pairwise_mask_function(function: Function) -> tuple[ast.AST, str] | None:
    """The comparison in a function that judges pairs of positions, with its description: `lambda b,
    h, q, kv: doc[q] == doc[kv]`; None otherwise.
    """
    for node in ast.walk(function.definition):
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq):
            continue
        left, right = node.left, node.comparators[0]
        if not isinstance(left, ast.Subscript) or not isinstance(right, ast.Subscript):
            continue
        if ast.dump(left.value) == ast.dump(right.value):
            return node, "all tokens of the same document"
    return None
