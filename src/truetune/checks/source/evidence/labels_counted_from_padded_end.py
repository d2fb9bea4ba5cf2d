"""Finds labels that are counted off from the end of a row at which its pads stand, in the symbolic
run of a script.

How it works: a slice that masks (`labels[:-n] = -100`), keeps (`labels[-n:] = ids[-n:]`) or joins
(`[-100] * k + ids[-n:]`) is followed back to the ids that it cuts, and these to what padded them: a
tokenizer, `pad_sequence`, pads that are added by hand. Where `n` is the length of a text that was
encoded alone, the last `n` places of a row that is padded on the right are pads, and the first `n`
of one that is padded on the left are.

The trade-off: a length that is computed in any other way may count the pads in, and is not judged.
Most tokenizers pad on the right unless a setting says otherwise; which do is not known without
their files.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from truetune.checks.source.evidence.prompts_padded_on_the_right import (
    PAD_SEQUENCE,
    does_tokenizer_pad_several_rows,
    padding_side_at_call,
)
from truetune.checks.source.evidence.training_rows_padded_to_fixed_length import pads_to_length
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, StoreEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Choice,
    Item,
    Operation,
    Result,
    Sequence,
    Slice,
    Value,
)

IGNORED = -100
"""The label that losses of torch and transformers leave out"""
SAME_IDS = frozenset(
    (
        "clone",
        "copy",
        "tolist",
        "detach",
        "squeeze",
        "long",
        "to",
        "contiguous",
        "numpy",
        "cpu",
        "int",
        "flatten",
        "astype",
    )
)
"""Methods whose result has the ids of what they are called on, in their order"""
COPIES = (
    "list",
    "copy.copy",
    "copy.deepcopy",
    "torch.tensor",
    "torch.as_tensor",
    "torch.LongTensor",
    "torch.clone",
    "numpy.array",
    "numpy.asarray",
    "numpy.copy",
)
JOINS = ("torch.cat", "torch.concat", "torch.hstack", "numpy.concatenate", "numpy.hstack")
FILLS = ("torch.full_like", "torch.full", "numpy.full", "numpy.full_like")
TORCH_PAD = "torch.nn.functional.pad"
LEFT_BY_DEFAULT = re.compile(r"gemma|mistral|mixtral|zephyr|phi-?3|chatglm|glm-4|internlm", re.I)
"""Models whose tokenizers pad on the left as they are published, in some or all of their releases"""
SIZES = ("shape", "size")
MAX_STEPS = 14
"""Copies, columns and rows between a slice and its padding. Chosen, not measured"""
Side = Literal["left", "right"]


class Padding(NamedTuple):
    """What pads the rows whose labels are cut."""

    node: ast.AST
    side: Side
    is_told: bool
    """The script says the side; else it is that of most tokenizers"""
    is_fixed: bool
    """All rows have one length; else the longest of a batch has no pads"""


class CutLabels(NamedTuple):
    """Labels that are counted off from the side of the pads."""

    node: ast.AST
    padding: Padding


def labels_cut_at_pads(module: Module) -> Iterator[CutLabels]:
    """The places of a file that count labels off from the side of the pads, each once."""
    if str(-IGNORED) not in module.text and "ignore_index" not in module.text.lower():
        return
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for node, ids, side in _label_cuts(trace):
            if node in seen or module.home(node) is not module:
                continue
            padding = _padding_of_ids(trace, ids)
            if padding is not None and padding.side == side:
                seen.add(node)
                yield CutLabels(node, padding)


def _label_cuts(trace: Trace) -> Iterator[tuple[ast.AST, Value, Side]]:
    """(place, the ids that are cut, the side from which the labels are counted) of a run."""
    for store in trace.stores:
        if isinstance(store.key, str):
            continue
        key = _token_slice_of_index(store.key)
        if key is not None:
            yield from _label_cuts_of_store(store, key)
    for value in trace.values:
        if isinstance(value, Operation) and value.operator == "+" and value.node is not None:
            yield from _label_cuts_of_join(value.node, value.operands)
    for call in trace.calls(*JOINS):
        parts = call.args[0] if call.args else None
        if isinstance(parts, Sequence):
            yield from _label_cuts_of_join(call.node, tuple(parts.items))


def _label_cuts_of_store(store: StoreEvent, key: Slice) -> Iterator[tuple[ast.AST, Value, Side]]:
    """The label cuts that a store makes: `labels[:-n] = -100`, `labels[-n:] = ids[-n:]`, and
    `labels[:n] = -100` for rows with pads before them.
    """
    if constant_of(store.value) == IGNORED or _is_all_ignored_labels(store.value):
        if key.start is None and key.stop is not None:
            if _counts_from_the_end(key.stop):
                yield store.node, store.base, "right"
            elif _is_length_of_unpadded_ids(key.stop):
                yield store.node, store.base, "left"
        return
    is_kept = isinstance(store.value, Item) and _takes_end_by_text_length(
        _token_slice_of_index(store.value.key)
    )
    if is_kept and _takes_end_by_text_length(key) and _is_all_ignored_labels(store.base):
        assert isinstance(store.value, Item)
        yield store.node, store.value.base, "right"


def _label_cuts_of_join(
    node: ast.AST, parts: tuple[Value, ...]
) -> Iterator[tuple[ast.AST, Value, Side]]:
    """The label cuts that a join makes: `[-100] * k + ids[-n:]`, and the same by torch.cat."""
    if len(parts) != 2 or not _is_all_ignored_labels(parts[0]):
        return
    kept = parts[1]
    if isinstance(kept, Item) and _takes_end_by_text_length(_token_slice_of_index(kept.key)):
        yield node, kept.base, "right"


def _token_slice_of_index(key: Value) -> Slice | None:
    """The slice of an index over the tokens of a row: `[:-n]`, `[0, :-n]`, `[:, -n:]`; None without
    one.
    """
    if isinstance(key, Sequence) and key.items:
        key = key.items[-1]
    return key if isinstance(key, Slice) and key.step is None else None


def _takes_end_by_text_length(key: Slice | None) -> bool:
    """Does a slice take the end of a row by the length of a text: `-n:`?"""
    return (
        key is not None
        and key.stop is None
        and key.start is not None
        and _counts_from_the_end(key.start)
    )


def _counts_from_the_end(place: Value) -> bool:
    """Is a position counted from the end of the row: `-n`, or the length of the row less `n`?"""
    if not isinstance(place, Operation) or place.operator != "-":
        return False
    *whole, taken = place.operands
    if not _is_length_of_unpadded_ids(taken):
        return False
    return not whole or type(constant_of(whole[0])) is int or _is_length(whole[0])


def _is_length_of_unpadded_ids(value: Value) -> bool:
    """Is it the length of ids that nothing padded, or a column that is called a length?"""
    if isinstance(value, Choice):
        return all(map(_is_length_of_unpadded_ids, value.options))
    if isinstance(value, Item) and isinstance(constant_of(value.key), str):
        return "len" in str(constant_of(value.key))
    measured = _measured_array(value)
    return measured is not None and _padding_source(measured) is None


def _is_length(value: Value) -> bool:
    """Is it the length of anything?"""
    return _measured_array(value) is not None


def _measured_array(value: Value) -> Value | None:
    """The array that a length is the length of: `len(x)`, `x.shape[-1]`, `x.size(1)`, `x.numel()`;
    None for other numbers.
    """
    if isinstance(value, Result):
        call = value.call
        if call.named("len") and call.args:
            return call.args[0]
        return call.receiver if call.method in ("size", "numel") else None
    if isinstance(value, Item) and isinstance(value.base, Attribute) and value.base.name in SIZES:
        return value.base.base
    return None


def _is_all_ignored_labels(value: Value) -> bool:
    """Is it -100 at each place: `[-100] * k`, `torch.full_like(ids, -100)`?"""
    if isinstance(value, Sequence):
        return bool(value.items) and all(constant_of(one) == IGNORED for one in value.items)
    if isinstance(value, Operation) and value.operator == "*":
        return any(
            isinstance(one, Sequence) and _is_all_ignored_labels(one) for one in value.operands
        )
    if isinstance(value, Item):
        return _is_all_ignored_labels(value.base)
    return isinstance(value, Result) and _call_gives_ignored_labels(value.call)


def _call_gives_ignored_labels(call: CallEvent) -> bool:
    """Does a call give labels that are all -100: `torch.full_like(ids, -100)`, or a copy of such?"""
    if call.named(*COPIES) and call.args:
        return _is_all_ignored_labels(call.args[0])
    return call.named(*FILLS) and constant_of(call.argument(1, "fill_value")) == IGNORED


def _padding_of_ids(trace: Trace, ids: Value) -> Padding | None:
    """What pads ids, and on which side; None where nothing is known to."""
    made = _padding_source(ids)
    if made is None:
        return None
    if isinstance(made, Operation):
        is_right = _is_repeated_pad(made.operands[-1])
        if made.node is None:
            return None
        return Padding(made.node, "right" if is_right else "left", True, True)
    if made.named(PAD_SEQUENCE):
        padding_side_argument = constant_of(made.argument(3, "padding_side"))
        return Padding(
            made.node, "left" if padding_side_argument == "left" else "right", True, False
        )
    if made.named(TORCH_PAD):
        side = _side_of_pad_widths(made.argument(1, "pad"))
        return None if side is None else Padding(made.node, side, True, True)
    return _padding_by_tokenizer(trace, made)


def _side_of_pad_widths(widths: Value | None) -> Side | None:
    """The side that `pad(ids, (left, right))` fills up; None where it may be both."""
    if not isinstance(widths, Sequence) or len(widths.items) < 2:
        return None
    # The first two are those of the last dimension, which is that of the places.
    on_left, on_right = map(constant_of, widths.items[:2])
    if on_left == 0:
        return "right"
    return "left" if on_right == 0 else None


def _padding_by_tokenizer(trace: Trace, call: CallEvent) -> Padding | None:
    """What a tokenizer pads: on the side that the script says, else on the right as most do."""
    side = padding_side_at_call(trace, call)
    if side == "left" or side == "right":
        return Padding(call.node, side, True, pads_to_length(call))
    if _may_pad_on_the_left(trace, call):
        return None
    return Padding(call.node, "right", False, pads_to_length(call))


def _may_pad_on_the_left(trace: Trace, call_event: CallEvent) -> bool:
    """Does the script speak of the side anywhere, or load a tokenizer that pads on the left by
    itself?
    """
    if any(store.key == "padding_side" for store in trace.stores):
        return True
    loads = [
        call for call in trace.methods("from_pretrained") if "Tokenizer" in "".join(call.names)
    ]
    loads += [call_event.receiver.call] if isinstance(call_event.receiver, Result) else []
    names = [constant_of(call.argument(0, "pretrained_model_name_or_path")) for call in loads]
    sides = any("padding_side" in call.keywords for call in loads)
    return sides or any(isinstance(name, str) and LEFT_BY_DEFAULT.search(name) for name in names)


def _padding_source(ids: Value, depth: int = 0) -> CallEvent | Operation | None:
    """The call or sum that padded ids, through copies and columns; None where none did, or it is
    not known.
    """
    if depth > MAX_STEPS:
        return None
    original = _source_of_same_ids(ids)
    if original is not None:
        return _padding_source(original, depth + 1)
    if isinstance(ids, Operation) and ids.operator == "+":
        # Pads on both sides say nothing.
        has_one_end = _is_repeated_pad(ids.operands[0]) != _is_repeated_pad(ids.operands[-1])
        return ids if has_one_end else None
    return ids.call if isinstance(ids, Result) and _call_pads_rows(ids.call) else None


def _source_of_same_ids(ids: Value) -> Value | None:
    """The value that holds the same ids, pads included: of a copy, a column or a row; None where
    ids are none of it.
    """
    if isinstance(ids, Attribute):
        return ids.base if ids.name in ("input_ids", "T") else None
    if isinstance(ids, Item):
        # A slice may leave the pads out.
        return None if isinstance(ids.key, Slice | Sequence) else ids.base
    if not isinstance(ids, Result):
        return None
    if ids.call.method in SAME_IDS:
        return ids.call.receiver
    return ids.call.args[0] if ids.call.named(*COPIES) and ids.call.args else None


def _call_pads_rows(call: CallEvent) -> bool:
    """Does a call give rows with pads?"""
    return (
        pads_to_length(call)
        or does_tokenizer_pad_several_rows(call)
        or call.named(PAD_SEQUENCE, TORCH_PAD)
    )


def _is_repeated_pad(value: Value) -> bool:
    """Is it a list of repeated pads: `[pad] * (length - len(ids))`?"""
    if not isinstance(value, Operation) or value.operator != "*":
        return False
    one_item = any(
        isinstance(one, Sequence) and len(one.items) == 1 and constant_of(one.items[0]) != IGNORED
        for one in value.operands
    )
    # A length that was computed before: `n_pad = limit - len(ids)`.
    return one_item and any(
        isinstance(one, Operation) and one.operator == "-" for one in value.operands
    )
