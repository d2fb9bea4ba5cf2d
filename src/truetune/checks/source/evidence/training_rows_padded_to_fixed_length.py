"""Finds the calls that pad rows of a training to one fixed length, in the symbolic run of a script.

How it works: each call that pads (a tokenizer, `pad`, a collator of transformers, pads that are
multiplied by hand) has a length: its own `max_length`, else the tokenizer's `model_max_length`,
where the script sets one. Settings that reach the call through functions, classes, dictionaries,
files and command lines are values here like any others.

The trade-off: calls whose result only a generation gets are no rows of the training; the length of
rows in a file is estimated from their characters, with three characters a token.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from typing import NamedTuple

from truetune.checks.source.evidence.does_script_train_model import run_trains_model
from truetune.checks.source.evidence.file_rows_behind_values import FileRows, local_rows_of_value
from truetune.checks.source.evidence.prompts_padded_on_the_right import call_making_ids
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace, is_constant_none
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Operation,
    Result,
    Sequence,
    Value,
)

COLLATORS = ("transformers.DataCollator*",)
PADDING_METHODS = frozenset(
    ("__call__", "encode_plus", "batch_encode_plus", "pad", "encode", "apply_chat_template")
)
SMALL_FAMILY = re.compile(r"gpt2|bert|t5|bart|electra|opt-|gpt-neo|bloom|clip|whisper", re.I)
"""Models whose tokenizer has a limit of a thousand tokens or so: padding to it is no waste to speak of"""
PACKS = re.compile(r"pack|segment|seq_?lens|\bbins?\b|\bdoc_ids?\b|position_ids", re.I)
"""Words of code that joins several examples to one row: their borders or their positions are kept"""
CHARACTERS_PER_TOKEN = 3
"""Fewer than English text has (about 4), so that rows are rather taken for too long"""


class FixedPadding(NamedTuple):
    """A call that pads rows to one length."""

    node: ast.AST
    length: int | None
    """None: the tokenizer's own limit"""
    rows: FileRows | None
    """The rows that are padded, where they are here"""


def fixed_paddings(module: Module) -> Iterator[FixedPadding]:
    """The places of a file that pad rows of a training to one length, each once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        if not run_trains_model(trace):
            continue
        for padding in (
            *_fixed_paddings_by_calls(trace, module, seen),
            *_fixed_paddings_by_hand(trace, module),
        ):
            if padding.node not in seen:
                seen.add(padding.node)
                yield padding


def _fixed_paddings_by_calls(
    trace: Trace, module: Module, known: Set[ast.AST]
) -> Iterator[FixedPadding]:
    """The calls of a run that pad training rows, without known ones and those that encode the
    prompts of a generation.
    """
    left_out = known | calls_encoding_prompts(trace)
    for call in trace.all_calls:
        if call.home.path != module.path or call.node in left_out or not pads_to_length(call):
            continue
        length = _padded_length_of(trace, call)
        if length is None or isinstance(length, int):
            rows = None if call.named(*COLLATORS) else _local_rows_encoded_by(module, call)
            yield FixedPadding(call.node, length, rows)


def _fixed_paddings_by_hand(trace: Trace, module: Module) -> Iterator[FixedPadding]:
    """Pads that are multiplied by hand up to a length, where they do not fill what is left of a
    pack: `[pad] * (8192 - len(ids))`.
    """
    for value in trace.values:
        length = _length_pads_are_multiplied_to(value) if isinstance(value, Operation) else None
        if length is None or value.node is None or not module.holds(value.node):
            continue
        if not _fills_packed_row(module, value.node):
            yield FixedPadding(value.node, length, None)


def calls_encoding_prompts(trace: Trace) -> set[ast.AST]:
    """The calls whose ids a generation gets."""
    nodes: set[ast.AST] = set()
    for generation in trace.methods("generate"):
        arguments = (*generation.args[:1], *generation.keywords.values())
        for one in arguments:
            encoding = call_making_ids(one)
            if encoding is not None:
                nodes.add(encoding.node)
    return nodes


def pads_to_length(call: CallEvent) -> bool:
    """Does a call pad to a length of its own?"""
    if not call.named(*COLLATORS) and call.method not in PADDING_METHODS:
        return False
    padding = call.keywords.get("padding")
    if padding is None and call.named(*COLLATORS) and len(call.args) > 1:
        padding = call.args[-1]
    if padding is not None and constant_of(padding) == "max_length":
        return True
    forced = call.keywords.get("pad_to_max_length")
    return forced is not None and constant_of(forced) is True


def _padded_length_of(trace: Trace, call: CallEvent) -> int | str | None:
    """The length that a call pads to; None for the tokenizer's own limit, a text where it is not
    known.
    """
    max_length_argument = call.keywords.get("max_length")
    if max_length_argument is not None and not is_constant_none(max_length_argument):
        plain = constant_of(max_length_argument)
        if type(plain) is int:
            return plain
        if not _is_limit_of_tokenizer(max_length_argument):
            return "not known"
    elif call.is_open:
        return "not known"
    return limit_script_sets_on_tokenizer(trace, call)


def _is_limit_of_tokenizer(value: Value) -> bool:
    """Is it the tokenizer's limit on lengths: `tokenizer.model_max_length`?"""
    return isinstance(value, Attribute) and value.name == "model_max_length"


def limit_script_sets_on_tokenizer(trace: Trace, call: CallEvent) -> int | str | None:
    """The limit that the script sets on the tokenizer; None where it sets none and the tokenizer's
    own is large.
    """
    load = _tokenizer_load_of(call)
    if load is None:
        return "not known"
    given = _limit_set_by_code(trace, call, load)
    if given is not None:
        plain = constant_of(given)
        return plain if type(plain) is int else "not known"
    # A part of a diffusion model, whose encoder reads captions of one length.
    if "subfolder" in load.keywords:
        return "not known"
    name = load.argument(0, "pretrained_model_name_or_path")
    plain = constant_of(name) if name is not None else ""
    words = (*load.names, plain if isinstance(plain, str) else "")
    return "small" if any(map(SMALL_FAMILY.search, words)) else None


def _tokenizer_load_of(call: CallEvent) -> CallEvent | None:
    """The one call that loads the tokenizer of a call; None where it is not known."""
    tokenizer = call.receiver or call.argument(0, "tokenizer")
    loads = (
        [way.call_that_gave_origin for way in lineages_back_to_origins(tokenizer)]
        if tokenizer is not None
        else []
    )
    if len(loads) != 1 or loads[0] is None:
        return None
    return loads[0] if loads[0].named("*Tokenizer*.from_pretrained", "unsloth.*") else None


def _limit_set_by_code(trace: Trace, call: CallEvent, load: CallEvent) -> Value | None:
    """The limit that is set on a tokenizer before a call, else given to its load; None where
    neither is.
    """
    for store in reversed(trace.stores):
        if store.key == "model_max_length" and store.number < call.number:
            return store.value
    return load.keywords.get("model_max_length") or load.keywords.get("max_seq_length")


def _local_rows_encoded_by(module: Module, call: CallEvent) -> FileRows | None:
    """The rows whose texts a call encodes, where they lie beside the script."""
    return None if not call.args else local_rows_of_value(module, call.args[0])


def _length_pads_are_multiplied_to(value: Operation) -> int | None:
    """The length that pads are multiplied up to; None where a value is no such product."""
    if value.operator != "*" or len(value.operands) != 2:
        return None
    pads = [one for one in value.operands if isinstance(one, Sequence) and len(one.items) == 1]
    lacking = [one for one in value.operands if isinstance(one, Operation) and one.operator == "-"]
    if len(pads) != 1 or len(lacking) != 1:
        return None
    return _length_row_is_subtracted_from(lacking[0])


def _length_row_is_subtracted_from(difference: Operation) -> int | None:
    """The length that a row's length is subtracted from: `8192` of `8192 - len(ids)`; None for
    another difference.
    """
    length = constant_of(difference.operands[0])
    taken = difference.operands[1]
    is_count = isinstance(taken, Result) and taken.call.named("len")
    return length if type(length) is int and is_count else None


def _fills_packed_row(module: Module, node: ast.AST) -> bool:
    """Do pads fill what is left of a row that several examples are packed into?"""
    around = next((one for one in module.parents(node) if isinstance(one, ast.FunctionDef)), None)
    if around is None:
        return False
    text = ast.unparse(around) + " ".join(
        one.name for one in module.parents(node) if isinstance(one, ast.ClassDef)
    )
    return PACKS.search(text) is not None and any(
        _extends_a_list(part)
        for loop in ast.walk(around)
        if isinstance(loop, ast.For)
        for part in loop.body
    )


def _extends_a_list(statement: ast.stmt) -> bool:
    """Does a statement add to a list: `ids += more`, `ids.extend(more)`?"""
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.op, ast.Add)
    call = statement.value if isinstance(statement, ast.Expr) else None
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "extend"
    )


def estimate_median_and_longest_tokens(rows: FileRows) -> tuple[int, int]:
    """Tokens of the median and the longest row, by the characters of all their texts."""
    lengths = sorted(
        sum(len(str(cell)) for cell in row.values()) // CHARACTERS_PER_TOKEN + 1
        for row in rows.rows
    )
    return lengths[len(lengths) // 2], lengths[-1]
