"""Computes to how many tokens a script cuts or pads the rows that it trains on, by its symbolic
run.

How it works: each tokenizer that cuts (`truncation=True`) or pads to a length has it in
`max_length`, or in the tokenizer's `model_max_length`; ids may be cut by a slice as well. Where the
number comes from (a dataclass, a dictionary, a file of settings, a command line's default, a
parameter) makes no difference to a run.

The trade-off: of several lengths the largest counts, so that a plan asks for too much memory rather
than for too little; calls whose ids only a generation gets are left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.source.evidence.training_rows_padded_to_fixed_length import (
    COLLATORS,
    PADDING_METHODS,
    calls_encoding_prompts,
    limit_script_sets_on_tokenizer,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace, is_constant_none
from truetune.source.symbolic_execution.values_of_run import Attribute, Item, Result, Slice, Value

IDS = "input_ids"
MAX_TOKENS = 1 << 20
"""Longest row that any model of today takes; a larger number is no length (`int(1e30)` of tokenizers)"""


def longest_row_after_cut_or_pad(module: Module) -> int | None:
    """The most tokens of a row that a script trains on; None where it sets no such length."""
    lengths = [
        length
        for trace in traces_of_scripts_that_reach_file(module)
        for length in _row_lengths_of_run(trace)
        if 0 < length <= MAX_TOKENS
    ]
    return max(lengths, default=None)


def _row_lengths_of_run(trace: Trace) -> Iterator[int]:
    """The lengths that rows of a run are cut or padded to."""
    prompts = calls_encoding_prompts(trace)
    for call in trace.all_calls:
        if call.node not in prompts and _cuts_or_pads_to_length(call):
            length = _row_length_of_call(trace, call)
            if length is not None:
                yield length
    for value in trace.values:
        length = _row_length_of_slice(value, prompts)
        if length is not None:
            yield length


def _cuts_or_pads_to_length(call: CallEvent) -> bool:
    """Does a call cut or pad rows to a length?"""
    if not call.named(*COLLATORS) and call.method not in PADDING_METHODS:
        return False
    cuts = call.keywords.get("truncation")
    plain = None if cuts is None else constant_of(cuts)
    if plain in (True, "longest_first", "only_first", "only_second"):
        return True
    padding = call.keywords.get("padding")
    return padding is not None and constant_of(padding) == "max_length"


def _row_length_of_call(trace: Trace, call: CallEvent) -> int | None:
    """The length of one call; None where it is not known."""
    max_length_argument = call.keywords.get("max_length")
    if max_length_argument is None or is_constant_none(max_length_argument):
        limit = limit_script_sets_on_tokenizer(trace, call)
        return limit if isinstance(limit, int) else None
    plain = constant_of(max_length_argument)
    if type(plain) is int:
        return plain
    if (
        isinstance(max_length_argument, Attribute)
        and max_length_argument.name == "model_max_length"
    ):
        limit = limit_script_sets_on_tokenizer(trace, call)
        return limit if isinstance(limit, int) else None
    return None


def _row_length_of_slice(value: Value, prompts: set[ast.AST]) -> int | None:
    """The length to which a slice cuts encoded ids: `N` of `tokenizer(text)["input_ids"][:N]`; None
    for any other value.
    """
    if not isinstance(value, Item) or not isinstance(value.key, Slice) or value.key.start:
        return None
    encoding = _encoding_of_ids(value.base)
    if encoding is None or encoding.node in prompts or value.key.stop is None:
        return None
    plain = constant_of(value.key.stop)
    return plain if type(plain) is int else None


def _encoding_of_ids(ids: Value) -> CallEvent | None:
    """The tokenizer's call whose ids these are: its result, or `input_ids` of that; else None."""
    if (isinstance(ids, Item) and constant_of(ids.key) == IDS) or (
        isinstance(ids, Attribute) and ids.name == IDS
    ):
        encoded = ids.base
    elif isinstance(ids, Result) and ids.call.method == "encode":
        encoded = ids
    else:
        return None
    if isinstance(encoded, Result) and encoded.call.method in PADDING_METHODS:
        return encoded.call
    return None
