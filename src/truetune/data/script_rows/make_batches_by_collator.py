"""Makes a few batches of a script's rows with the script's own collator, which is followed and not run.

How it works: rows are given to the collator as a loader gives them, in their order; one batch holds the shortest and
the longest rows, for most faults of a collator show where it pads. What it makes is kept where the ids are known: rows
of numbers by the names of its dictionary, or of a tuple by what its lists hold.

The trade-off: a few batches of a few rows. A collator does the same to all of them, and following one takes time.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truetune.data.script_rows.compute_dataset_methods_on_known_rows import copy_of_value
from truetune.data.script_rows.compute_tensors_with_numpy import array_of
from truetune.data.script_rows.compute_tokenizer_calls_of_script import Padding
from truetune.data.script_rows.symbolic_run_with_rows import ConcreteRun
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.interpreter import LimitReached
from truetune.source.symbolic_execution.values_of_run import (
    Function,
    Instance,
    Mapping,
    Partial,
    Sequence,
    Value,
)

MAX_BATCH_SIZE = 4
"""Rows of one batch. Padding and exchanged rows show in two; with four the first row is not half of the batch"""
MAX_BATCHES = 3
"""Batches of rows in their order, besides that of the shortest and longest ones. Chosen: a collator does the same to
each batch, and following one takes some ten milliseconds for short rows"""


@dataclass(frozen=True)
class ScriptBatch:
    """What the collator made of some rows."""

    rows: tuple[int, ...]
    """Their numbers in the rows that the script trains"""
    given: tuple[dict[str, Any], ...]
    """The rows as the collator was given them, as far as they are known"""
    arrays: dict[str, NDArray[Any]]
    """Name -> (rows, tokens)"""


@dataclass(frozen=True, slots=True)
class ScriptCollator:
    """The script's own collator, and what it makes."""

    name: str
    line: int
    """Where it is defined"""
    padding: Padding
    """How the script's tokenizer pads"""
    batches: tuple[ScriptBatch, ...] | None
    """None where they are not known; empty where each batch holds one row"""


def collator_with_sample_batches(
    run: ConcreteRun, collator: Value, items: list[Value], batch_size: int | None
) -> ScriptCollator:
    """A collator of the script with a few batches that it makes of a data set's items.

    Args:
        run: The run of the script, up to its trainer.
        collator: The function or object of the script that makes batches.
        items: The data set's items.
        batch_size: Rows of a batch as the script says; None where it is not known.
    """
    name, line = _name_and_line(collator)
    size = min(MAX_BATCH_SIZE, len(items), batch_size or MAX_BATCH_SIZE)
    batches: tuple[ScriptBatch, ...] | None = ()
    if size > 1:
        try:
            batches = _make_batches(run, collator, items, size)
        except (LimitReached, RecursionError):
            batches = None  # the rows are known all the same
    return ScriptCollator(name, line, run.padding_of_script(), batches)


def _make_batches(
    run: ConcreteRun, collator: Value, items: list[Value], size: int
) -> tuple[ScriptBatch, ...] | None:
    """Batches of so many items; None where one of them is not known."""
    script_batches: list[ScriptBatch] = []
    for numbers in _choose_row_numbers_of_batches(items, size):
        # Copies: what a collator changes in its rows would be changed in the next batch.
        rows = [copy_of_value(items[number]) for number in numbers]
        given = tuple(_plain_columns(row) for row in rows)
        arrays = _arrays_of_batch(run.make_batch(collator, rows))
        if "input_ids" not in arrays:
            return None
        script_batches.append(ScriptBatch(tuple(numbers), given, arrays))
    return tuple(script_batches)


def _choose_row_numbers_of_batches(items: list[Value], size: int) -> list[list[int]]:
    """The numbers of the rows of each batch."""
    in_order = [
        list(range(start, start + size))
        for start in range(0, len(items) - size + 1, size)[:MAX_BATCHES]
    ]
    by_length = sorted(range(len(items)), key=lambda number: _length_of_item(items[number]))
    # The longest first: what a collator takes from its first row alone then shows.
    ends = [*by_length[-(size - size // 2) :][::-1], *by_length[: size // 2]]
    return [*in_order, ends]


def _length_of_item(item: Value) -> int:
    """The numbers and characters of an item, by which rows are told that are padded most."""
    if isinstance(item, Mapping):
        return sum(_length_of_item(one) for one in item.entries.values())
    if isinstance(item, Sequence):
        return sum(1 + _length_of_item(one) for one in item.items)
    plain = constant_of(item)
    return len(plain) if isinstance(plain, str) else 0


def _plain_columns(row: Value) -> dict[str, Any]:
    """The columns of a row whose values are known."""
    if not isinstance(row, Mapping):
        return {}
    columns = {
        str(name): _replace_tuple_by_list(constant_of(one)) for name, one in row.entries.items()
    }
    return {name: one for name, one in columns.items() if isinstance(one, str | list | int | float)}


def _replace_tuple_by_list(value: Any) -> Any:
    """A tuple as a list, as JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def _arrays_of_batch(batch: Value) -> dict[str, NDArray[Any]]:
    """The arrays of numbers in a batch, by name; without those that are not known."""
    if isinstance(batch, Mapping) and not batch.is_open:
        arrays = {str(name): array_of(one) for name, one in batch.entries.items()}
        return {name: one for name, one in arrays.items() if one is not None and one.ndim}
    if isinstance(batch, Sequence) and batch.kind == "tuple":
        return _name_batch_arrays_by_content(_two_dimensional_arrays(batch.items))
    return {}


def _two_dimensional_arrays(values: SequenceOf[Value]) -> list[NDArray[Any]]:
    """The values that are arrays of two dimensions."""
    arrays = map(array_of, values)
    return [array for array in arrays if array is not None and array.ndim == 2]


def _name_batch_arrays_by_content(columns: SequenceOf[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Arrays of a tuple by what they hold: a mask is 0 and 1 alone, labels are those with -100, ids the first other."""
    named: dict[str, NDArray[Any]] = {}
    for column in columns:
        if np.isin(column, (0, 1)).all():
            name = "attention_mask"
        elif (column < 0).any():
            name = "labels"
        else:
            name = "labels" if "input_ids" in named else "input_ids"
        named.setdefault(name, column)
    return named


def _name_and_line(collator: Value) -> tuple[str, int]:
    """The name of a collator and the line where it is defined."""
    if isinstance(collator, Partial):
        return _name_and_line(collator.function)
    if isinstance(collator, Instance):
        definition = collator.made_of.definition
        return definition.name, definition.lineno
    if isinstance(collator, Function):
        return collator.name, collator.definition.lineno
    return "the collator", 1
