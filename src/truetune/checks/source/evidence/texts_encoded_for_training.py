"""Finds the texts that a script encodes as rows for a causal model's training, in its symbolic run,
with the columns that they are made of.

How it works: what a tokenizer gives is followed forwards, through lists, columns, functions of
`map`, data sets and collators, until a trainer or a backward pass gets it; ids that `generate` gets
are prompts. Each text that is encoded is followed backwards to the columns of the row that it is
made of.

The trade-off: a text with any part that is not seen counts as unknown, for it may hold a stop
token.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.may_stop_token_follow_training_rows import FINISHED_COLUMNS
from truetune.source.symbolic_execution.element_of_iterable import (
    representative_element_of_iterable,
)
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import (
    CallEvent,
    Event,
    NameEvent,
    StoreEvent,
    Trace,
)
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Choice,
    Constant,
    Element,
    Instance,
    Item,
    Mapping,
    Operation,
    Parameter,
    Result,
    Sequence,
    Slice,
    Value,
)

TOKENIZER_LOADS = ("transformers.*Tokenizer*.from_pretrained",)
UNSLOTH_LOADS = ("unsloth.*.from_pretrained",)
ENCODES = ("__call__", "encode", "encode_plus", "batch_encode_plus")
TRAINERS = ("transformers.*Trainer", "trl.*SFTTrainer", "unsloth.*Trainer")
SFT_TRAINERS = ("trl.*SFTTrainer", "unsloth.*Trainer")
GENERATES = ("generate", "chat")
MEASURES = ("len", "print", "max", "min", "sum", "sorted", "numpy.*", "collections.Counter")
"""Functions whose result holds none of the ids that they are given"""
COMPARES = ("<", "<=", ">", ">=", "==", "!=", "in", "not in", "not")
"""Operators whose result holds none of the ids"""
TEXT_METHODS = frozenset(("strip", "lstrip", "rstrip", "replace", "lower", "title", "rstrip"))
"""Methods of a text that put nothing behind it which is not seen"""
MAX_VALUES = 4_000
"""Values that are made of one call's ids and followed. Chosen, not measured: a script makes some dozens"""
MAX_DEPTH = 24
"""Parts inside one another of one text"""


class EncodedRow(NamedTuple):
    """A text that is encoded for a training, or that a trainer encodes."""

    call: CallEvent
    """The call of the tokenizer, or the construction of the trainer"""
    columns: frozenset[str] | None
    """Of the row, that the text is made of; None where a part of it is not seen"""
    ends_in_script_text: bool
    """Does the script write a text behind the last column, which the model may learn to end with?"""


def encoded_rows(trace: Trace) -> Iterator[EncodedRow]:
    """The texts that a run encodes for its training."""
    taken = library_calls_by_callback_result(trace)
    for call in trace.all_calls:
        if (
            call.method not in ENCODES
            or call.is_in_later_loop_pass
            or not _is_tokenizer_or_named_so(call.receiver)
        ):
            continue
        text = call.argument(0, "text")
        if text is not None and _ids_are_trained(trace, call, taken):
            yield EncodedRow(call, columns_composing_text(text), ends_in_script_text(text))


def texts_encoded_by_unsloth_trainer(trace: Trace) -> Iterator[EncodedRow]:
    """The texts that Unsloth's trainer encodes, which appends no stop token."""
    for call in trace.calls(*SFT_TRAINERS):
        data = call.keywords.get("train_dataset")
        if data is None:
            continue
        row = representative_element_of_iterable(data)
        text = row.entries.get(_text_column_of_trainer(call)) if isinstance(row, Mapping) else None
        for _, returned in call.returned_by_callbacks:
            text = returned if "formatting_func" in call.keywords else text
        if text is not None:
            yield EncodedRow(call, columns_composing_text(text), ends_in_script_text(text))


def _text_column_of_trainer(trainer: CallEvent) -> str:
    """The column that a trainer takes as text."""
    dataset_text_field_argument = trainer.keywords.get("dataset_text_field")
    args = trainer.keywords.get("args")
    if dataset_text_field_argument is None and isinstance(args, Result):
        dataset_text_field_argument = args.call.keywords.get("dataset_text_field")
    named = constant_of(dataset_text_field_argument)
    return named if isinstance(named, str) else "text"


def _is_tokenizer_or_named_so(value: Value | None) -> bool:
    """Is it surely a tokenizer, or an argument that is named as one?"""
    if value is None:
        return False
    if isinstance(value, Parameter):
        return value.name.lower().startswith("tok")
    ways = lineages_back_to_origins(value)
    return bool(ways) and all(_is_loaded_tokenizer(way.origin) for way in ways)


def _is_loaded_tokenizer(origin: Value) -> bool:
    """Is it what a load of a tokenizer gives?"""
    if isinstance(origin, Result):
        return origin.call.named(*TOKENIZER_LOADS)
    if isinstance(origin, Item) and isinstance(origin.base, Result):
        return origin.base.call.named(*UNSLOTH_LOADS) and constant_of(origin.key) == 1
    return False


def _ids_are_trained(trace: Trace, call: CallEvent, taken: dict[int, list[CallEvent]]) -> bool:
    """Does a trainer or a backward pass get the ids of a call, and no generation?"""
    is_trained = False
    for use in transitive_uses_of_result(trace, call, taken):
        if isinstance(use, CallEvent) and use.method in GENERATES:
            return False
        is_trained = is_trained or _does_use_train_on_ids(use)
    return is_trained


def result_reaches_a_model(
    trace: Trace, call: CallEvent, taken: dict[int, list[CallEvent]]
) -> bool:
    """Is a model trained on the result of a call, or asked with it?"""
    return any(
        _does_use_train_on_ids(use) or (isinstance(use, CallEvent) and use.method in GENERATES)
        for use in transitive_uses_of_result(trace, call, taken)
    )


def transitive_uses_of_result(
    trace: Trace, call: CallEvent, taken: dict[int, list[CallEvent]]
) -> Iterator[Value | Event]:
    """What is done with the result of a call, and with all that is made of it."""
    waiting: list[Value] = [call.result]
    seen: set[int] = set()
    while waiting and len(seen) < MAX_VALUES:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        for call_of_callback in taken.get(id(value), ()):
            yield call_of_callback
            waiting.append(call_of_callback.result)
        for use in trace.uses(value):
            yield use
            waiting += _values_holding_result_after_use(use)


def library_calls_by_callback_result(trace: Trace) -> dict[int, list[CallEvent]]:
    """The library calls that ran a function of the project, by the identity of what that function
    gave back.
    """
    taken: dict[int, list[CallEvent]] = {}
    for call in trace.all_calls:
        for _, returned in (*call.returned_by_callbacks, *call.returned_by_hooks):
            taken.setdefault(id(returned), []).append(call)
        for given in call.inputs:
            row = given.entries.get("<row>") if isinstance(given, Instance) else None
            if row is not None:
                taken.setdefault(id(row), []).append(call)
    return taken


def _does_use_train_on_ids(use: Value | Event) -> bool:
    """Does a use of ids train on them?"""
    if not isinstance(use, CallEvent):
        return False
    return use.method in ("backward", "fit") or use.named(*TRAINERS, "*.backward")


def _values_holding_result_after_use(use: Value | Event) -> Iterator[Value]:
    """The values that hold, after a use, what it was given."""
    if isinstance(use, Result):
        if not use.call.named(*MEASURES):
            yield use
    elif isinstance(use, Operation):
        if use.operator not in COMPARES:
            yield use
    elif isinstance(use, Value):
        yield use
    elif isinstance(use, StoreEvent):
        yield use.base
    elif isinstance(use, NameEvent):
        yield use.value


def columns_composing_text(text: Value, depth: int = 0) -> frozenset[str] | None:
    """The columns of a row that a text is made of; None where any part of it is not seen."""
    if depth > MAX_DEPTH:
        return None
    if isinstance(text, Constant):
        return frozenset()
    if isinstance(text, Item) and isinstance(text.key, Slice):
        return columns_composing_text(text.base, depth + 1)
    if isinstance(text, Item):
        return _single_column_unless_finished_row(constant_of(text.key))
    if isinstance(text, Attribute):
        return (
            _single_column_unless_finished_row(text.name)
            if isinstance(text.base, Element)
            else None
        )
    if isinstance(text, Element):
        return columns_composing_text(text.iterable, depth + 1)
    if isinstance(text, Result):
        return _columns_composing_result(text.call, depth + 1)
    parts = _parts_composing_text(text)
    return None if parts is None else _union_of_columns(parts, depth + 1)


def _single_column_unless_finished_row(name: object) -> frozenset[str] | None:
    """The column of that name alone; None where it may hold a finished row, such as a rendered
    text.
    """
    # A prompt is no finished row where the row has another column, and else it is not judged.
    if not isinstance(name, str) or name in FINISHED_COLUMNS - {"prompt"}:
        return None
    return frozenset((name,))


def _parts_composing_text(text: Value) -> list[Value] | None:
    """What a sum, an f-string, a list or a choice is made of; None of anything else."""
    if isinstance(text, Operation) and text.operator in ("+", "format", "%"):
        return list(text.operands)
    if isinstance(text, Sequence):
        return text.items
    return list(text.options) if isinstance(text, Choice) else None


def _union_of_columns(parts: list[Value], depth: int) -> frozenset[str] | None:
    """The columns of all parts; None where one is not seen."""
    joined: frozenset[str] = frozenset()
    for part in parts:
        columns = columns_composing_text(part, depth)
        if columns is None:
            return None
        joined |= columns
    return joined


def _columns_composing_result(call: CallEvent, depth: int) -> frozenset[str] | None:
    """The columns that a call's result is made of: `row["a"].strip()`, `TEMPLATE.format(**row)`,
    `row.get("a", "")`; None where any is not seen.
    """
    if call.method == "get" and call.args:
        return _single_column_unless_finished_row(constant_of(call.args[0]))
    if call.method == "apply_chat_template":
        return frozenset(("messages",)) if _adds_generation_prompt(call) else None
    if call.method == "format" and call.receiver is not None:
        return _columns_filled_by_format(call, call.receiver, depth)
    if call.method == "join" and call.args:
        return _union_of_columns([call.args[0]], depth)
    text = _text_changed_by(call)
    return None if text is None else columns_composing_text(text, depth)


def _text_changed_by(call: CallEvent) -> Value | None:
    """The text that a method of texts, or `str`, is applied to; None for any other call."""
    if call.method in TEXT_METHODS and call.receiver is not None:
        return call.receiver
    return call.args[0] if call.named("str") and call.args else None


def _adds_generation_prompt(call: CallEvent) -> bool:
    """Does a chat template end the text where the answer begins, by `add_generation_prompt`?"""
    return constant_of(call.keywords.get("add_generation_prompt")) is True


def _columns_filled_by_format(
    call: CallEvent, template: Value, depth: int
) -> frozenset[str] | None:
    """The columns that `template.format(...)` puts in."""
    parts = [template, *call.args]
    parts += [one for name, one in call.keywords.items() if name != "**"]
    columns = _union_of_columns(parts, depth)
    if columns is None or "**" not in call.keywords:
        return columns
    plain = constant_of(template)
    if not isinstance(plain, str):
        return None
    names = _fields_of_template(plain)
    named = [_single_column_unless_finished_row(name) for name in names]
    return columns.union(*(one for one in named if one is not None)) if all(named) else None


def ends_in_script_text(text: Value, depth: int = 0) -> bool:
    """Does a text of the script, such as an end mark, stand after the last column?"""
    if depth > MAX_DEPTH:
        return False
    if isinstance(text, Constant):
        return isinstance(text.value, str) and bool(text.value.strip())
    if isinstance(text, Result):
        return _result_ends_in_script_text(text.call, depth + 1)
    parts = _parts_composing_text(text)
    if not parts:
        return False
    if isinstance(text, Operation):
        return ends_in_script_text(parts[-1], depth + 1)
    return all(ends_in_script_text(part, depth + 1) for part in parts)


def _result_ends_in_script_text(call: CallEvent, depth: int) -> bool:
    """Does the result of a call end in a text of the script: `TEMPLATE.format(...)`,
    `text.strip()`?
    """
    if call.receiver is None:
        return False
    if call.method == "format":
        template = constant_of(call.receiver)
        return isinstance(template, str) and bool(template.rpartition("}")[2].strip())
    return call.method in TEXT_METHODS and ends_in_script_text(call.receiver, depth)


def _fields_of_template(template: str) -> list[str]:
    """The names in the braces of a template."""
    try:
        return [field for _, field, _, _ in string.Formatter().parse(template) if field]
    except ValueError:
        return []
