"""Finds what one element of an iterable is: of a list, a loader, a data set that was mapped, `zip`,
`tqdm`.

The trade-off: a data set of which nothing is known gives one element, the same object each time, which stands for any
of its rows; a loader with a collator of the project gives what the collator returns.
"""

from __future__ import annotations

import ast

from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import (
    Choice,
    Constant,
    Element,
    Function,
    Instance,
    Item,
    Mapping,
    Opaque,
    Parameter,
    Result,
    Sequence,
    Value,
    choice_of_values,
    options_of_choice,
)

ELEMENT = "<element>"
"""The key under which an opaque value keeps its element"""
MAX_UNROLLED = 12
"""Items of a list whose loop is run once for each. Chosen, not measured: lists of models or columns are shorter"""
PASSES_ON = (
    "tqdm.*",
    "rich.progress.track",
    "list",
    "tuple",
    "set",
    "sorted",
    "reversed",
    "iter",
    "itertools.islice",
    "itertools.cycle",
    "itertools.chain.from_iterable",
    "random.sample",
    "accelerate.skip_first_batches",
)
"""Functions whose result has the elements of their first argument"""
KEEPS_ROWS = (
    "filter",
    "select",
    "shuffle",
    "sort",
    "with_format",
    "remove_columns",
    "rename_column",
    "rename_columns",
    "select_columns",
    "take",
    "skip",
    "shard",
    "flatten_indices",
    "cast",
    "cast_column",
    "train_test_split",
    "repeat",
    "with_transform",
)
"""Methods of a data set whose result has rows of the same data set"""
PREPARING_METHODS = ("prepare", "prepare_data_loader", "setup_dataloaders")
"""Methods of Accelerate and Fabric whose result has the batches of the loader that they are given"""
TENSOR_ROWS = "torch.utils.data.TensorDataset"
"""A data set whose rows are one element of each of its tensors"""
LOADERS = ("torch.utils.data.*DataLoader", "torch.utils.data.dataloader.DataLoader", "*.DataLoader")


def representative_element_of_iterable(iterable: Value, depth: int = 0) -> Value:
    """One element of an iterable, which stands for any of them."""
    if depth > 12:
        return Element(iterable)
    if isinstance(iterable, Sequence):
        return choice_of_values(iterable.items) if iterable.items else Element(iterable)
    if isinstance(iterable, Mapping):
        keys: list[Value] = [Constant(key) for key in iterable.entries]
        return choice_of_values(keys) if keys else Element(iterable)
    if isinstance(iterable, Choice):
        return choice_of_values(
            [representative_element_of_iterable(one, depth + 1) for one in iterable.options]
        )
    if not isinstance(iterable, Opaque):
        return Element(iterable)
    if ELEMENT not in iterable.entries:
        iterable.entries[ELEMENT] = _element_of_library_object(iterable, depth)
    return iterable.entries[ELEMENT]


def _element_of_library_object(iterable: Opaque, depth: int) -> Value:
    """One element of something that a library gave."""
    if isinstance(iterable, Item):
        # `splits["train"]` of a dictionary of data sets that was mapped as a whole.
        given = _argument_at_prepared_place(iterable)
        if given is not None:
            return representative_element_of_iterable(given, depth + 1)
        inner = representative_element_of_iterable(iterable.base, depth + 1)
        return inner if isinstance(inner, Mapping) else Element(iterable, node=iterable.node)
    if isinstance(iterable, Result):
        return _element_of_call_result(iterable.call, depth) or Element(
            iterable, node=iterable.node
        )
    if isinstance(iterable, Parameter):
        return _row_given_to_collator(iterable, depth) or Element(iterable, node=iterable.node)
    if isinstance(iterable, Instance):
        given = iterable.entries.get("<row>")
        return given if given is not None else Element(iterable, node=iterable.node)
    return Element(iterable, node=iterable.node)


def _row_given_to_collator(rows: Parameter, depth: int) -> Value | None:
    """One of the rows that a loader hands to its collator; None where they are not seen, or are no such rows."""
    loader = rows.given_by
    if loader is None or rows.position > 0 or not loader.named(*LOADERS) or not loader.args:
        return None
    collator = loader.argument(6, "collate_fn")
    is_function = isinstance(collator, Function) and (
        collator.definition is rows.function.definition
    )
    if not is_function and (collator is None or collator is not rows.function.receiver):
        return None
    row = representative_element_of_iterable(loader.args[0], depth + 1)
    is_known = all(isinstance(one, Mapping | Sequence) for one in options_of_choice(row))
    return row if is_known else None


def columns_of_zipped_rows(row: Value, node: ast.AST) -> Sequence | None:
    """The result of `zip(*rows)`: a list for each place of a row; None if the places are not known."""
    if not isinstance(row, Sequence) or row.is_open:
        return None
    columns = [Sequence("tuple", [one], is_open=True, node=one.node) for one in row.items]
    return Sequence("list", list(columns), node=node)


def _argument_at_prepared_place(item: Item) -> Value | None:
    """The argument at one place of `accelerator.prepare(model, loader)`; None if the item is of no
    such result.
    """
    made, position = item.base, constant_of(item.key)
    if not isinstance(made, Result) or made.call.method not in PREPARING_METHODS:
        return None
    is_place = isinstance(position, int) and 0 <= position < len(made.call.args)
    return made.call.args[position] if is_place else None


def _element_of_call_result(call: CallEvent, depth: int) -> Value | None:
    """One element of what a call gave; None where it is not known."""
    if call.named("zip", "enumerate", TENSOR_ROWS) and call.args:
        return _tuple_of_elements(call, depth)
    if call.named(*PASSES_ON) and call.args:
        return representative_element_of_iterable(call.args[0], depth + 1)
    if call.named(*LOADERS):
        return _batch_of_loader(call, depth)
    if call.named("map") and call.returned_by_callbacks:
        return call.returned_by_callbacks[-1][1]
    if call.method == "map":
        return _row_of_mapped_data_set(call, depth)
    kept = _receiver_whose_rows_method_keeps(call)
    return None if kept is None else representative_element_of_iterable(kept, depth + 1)


def _tuple_of_elements(call: CallEvent, depth: int) -> Sequence:
    """One element of `zip`, `enumerate` or a TensorDataset: a tuple of one element of each argument."""
    parts = [representative_element_of_iterable(one, depth + 1) for one in call.args]
    if call.named("enumerate"):
        parts = [Element(Constant("number")), parts[0]]
    return Sequence("tuple", parts)


def _receiver_whose_rows_method_keeps(call: CallEvent) -> Value | None:
    """The loader or data set whose rows the result of a method has too; None for any other method."""
    if call.method in PREPARING_METHODS and len(call.args) == 1:
        return call.args[0]
    return call.receiver if call.method in KEEPS_ROWS else None


def _batch_of_loader(call: CallEvent, depth: int) -> Value | None:
    """One batch of a loader: what its collator gives, else rows of the data set."""
    collator = call.argument(6, "collate_fn")
    if collator is not None and call.returned_by_callbacks:
        return call.returned_by_callbacks[-1][1]
    if collator is None and call.args:
        row = representative_element_of_iterable(call.args[0], depth + 1)
        is_known = all(isinstance(one, Mapping | Sequence) for one in options_of_choice(row))
        return row if is_known else None
    return None


def _row_of_mapped_data_set(call: CallEvent, depth: int) -> Value | None:
    """One row of a data set that was mapped: the columns that the function gives, beside those that were there."""
    if call.receiver is None or not call.returned_by_callbacks:
        return None
    returned = call.returned_by_callbacks[-1][1]
    row = representative_element_of_iterable(call.receiver, depth + 1)
    options = returned.options if isinstance(returned, Choice) else (returned,)
    # A function that writes into the row it is given, and returns it, adds those columns.
    mapped = [
        one
        for one in options
        if isinstance(one, Mapping) or _is_tokenizer_output(one) or one is row
    ]
    if len(mapped) != len(options):
        return Element(call.result, node=call.node)
    return choice_of_values([_row_with_columns(row, one) for one in mapped])


def _is_tokenizer_output(value: Value) -> bool:
    """Is it what a tokenizer gave, to which a function may have added columns of its own?"""
    return isinstance(value, Result) and value.call.method == "__call__" and bool(value.entries)


def _row_with_columns(row: Value, added: Value) -> Mapping:
    """A row with the columns that a function gives."""
    entries = dict(row.entries) if isinstance(row, Mapping) else {}
    rest = row.rest if isinstance(row, Mapping) else row
    if isinstance(added, Mapping):
        entries.update(added.entries)
        return Mapping(entries, added.rest or rest, node=added.node)
    if isinstance(added, Opaque):
        entries.update((key, one) for key, one in added.entries.items() if isinstance(key, str))
        entries.pop(ELEMENT, None)
    return Mapping(entries, added, node=added.node)


def items_of_short_list(iterable: Value) -> list[Value] | None:
    """The items of a short known list, each of which gets its own pass of a loop; None for anything
    else.
    """
    if isinstance(iterable, Sequence) and not iterable.is_open:
        return list(iterable.items) if len(iterable.items) <= MAX_UNROLLED else None
    if isinstance(iterable, Result):
        return _items_of_enumerate_call(iterable.call)
    return None


def _items_of_enumerate_call(call: CallEvent) -> list[Value] | None:
    """The items of `enumerate(list)` and the like."""
    if not call.args or not call.named("enumerate", *PASSES_ON):
        return None
    inner = items_of_short_list(call.args[0])
    if inner is None or not call.named("enumerate"):
        return inner
    return [Sequence("tuple", [Constant(i), one]) for i, one in enumerate(inner)]
