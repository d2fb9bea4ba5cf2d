"""Computes the methods of `datasets` and pandas on a data set whose rows are known.

How it works: a `Table` is a list of `Row`s; a method gives a new table. Each row keeps the place in a file that it
came from, as long as one row is made of one row.

The trade-off: a random order or a random split changes no row, so `shuffle` and `train_test_split` give all rows as
they stand. What a filter or a function does to a row that is not known leaves that row open: it may hold anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Constant,
    Mapping,
    Sequence,
    Slice,
    Value,
)

COLUMN = "column"
"""The kind of a list that is a column: sums and methods of texts go item by item"""
BATCH_ROWS = 1_000
"""Rows that `map` gives to a batched function at once, where the script does not say; the default of `datasets`"""
RANDOM_SPLIT = "the rows of the random split are not known: all rows are taken as training rows"
KEEPS_ALL_ROWS = frozenset(
    (
        "shuffle",
        "sort",
        "with_format",
        "set_format",
        "with_transform",
        "cast",
        "cast_column",
        "flatten_indices",
        "class_encode_column",
        "repeat",
        "reset_index",
        "sample",
        "copy",
        "astype",
        "fillna",
        "to_pandas",
        "to_list",
        "to_iterable_dataset",
    )
)
"""Methods whose result has the same rows, maybe in another order"""

Call = Callable[[Value, tuple[Value, ...], dict[str, Value]], Value]
"""Calls a function of the script with positional arguments and with named ones"""


class Place(NamedTuple):
    """Where a row stands."""

    file: Path
    line: int


@dataclass(eq=False, slots=True)
class Row(Mapping):
    """One row."""

    place: Place | None = field(default=None, kw_only=True)
    """Where it came from; None where it is not made of one row"""


@dataclass(eq=False, slots=True)
class Table(Sequence):
    """A data set, or a frame."""

    notes: list[str] = field(default_factory=list, kw_only=True)
    """What of its making was not followed; each leaves the rows that are there as they are"""

    @property
    def rows(self) -> list[Row]:
        """The rows of the table."""
        return [one for one in self.items if isinstance(one, Row)]

    def column_names(self) -> Sequence:
        """The names of its columns: those of the first row."""
        names = self.rows[0].entries if self.rows else {}
        return Sequence("list", [Constant(name) for name in names])


def make_table(rows: list[Row], like: Table | None = None) -> Table:
    """A table of rows, with the notes of the one that it is made of."""
    return Table("list", list(rows), notes=[] if like is None else list(like.notes))


def table_of_dictionaries(rows: Value, places: list[Place] | None) -> Table | None:
    """The table of a list of dictionaries.

    Args:
        rows: The list.
        places: Of the rows of the file that was read, where the list may be made of it row by row.

    Returns:
        None where the list is not known.
    """
    if isinstance(rows, Table):
        return rows
    if not isinstance(rows, Sequence) or rows.is_open:
        return None
    given = [one for one in rows.items if isinstance(one, Mapping)]
    if len(given) != len(rows.items):
        return None
    if places is None or len(places) != len(given):
        return make_table([_row_of_mapping(one, None) for one in given])
    return make_table([_row_of_mapping(*pair) for pair in zip(given, places, strict=True)])


def _row_of_mapping(mapping: Mapping, place: Place | None) -> Row:
    """A row with the entries of a dictionary, at its own place if it is a row, else at the one that
    is given.
    """
    own = mapping.place if isinstance(mapping, Row) else None
    return Row(
        dict(mapping.entries), mapping.rest, mapping.is_open, place=place if own is None else own
    )


def table_of_column_lists(columns: Value, places: list[Place] | None) -> Table | None:
    """The table of a dictionary of lists, one for each column; None if it is not known."""
    if not isinstance(columns, Mapping) or columns.is_open or not columns.entries:
        return None
    lists = _lists_of_one_length(columns)
    if lists is None:
        return None
    rows: list[Value] = [
        Mapping(dict(zip(columns.entries, (one.items[n] for one in lists), strict=True)))
        for n in range(len(lists[0].items))
    ]
    return table_of_dictionaries(Sequence("list", rows), places)


def _lists_of_one_length(columns: Mapping) -> list[Sequence] | None:
    """The lists of all columns; None where one is not known, or they differ in length."""
    lists = [one for one in columns.entries.values() if isinstance(one, Sequence)]
    if len(lists) != len(columns.entries) or any(one.is_open for one in lists):
        return None
    count = len(lists[0].items)
    return lists if all(len(one.items) == count for one in lists) else None


def call_table_method(
    table: Table, method: str, args: tuple[Value, ...], keywords: dict[str, Value], call: Call
) -> Value | None:
    """The result of a method of a data set or frame; None if it is not known."""
    if method in KEEPS_ALL_ROWS:
        return make_table(table.rows, table)
    if method == "map":
        return _map_rows(table, args, keywords, call)
    if method in ("dropna", "drop_duplicates"):
        return _drop_empty_or_duplicate_rows(table, method, args, keywords)
    if method == "filter":
        return _filter_rows(table, args, keywords, call)
    if method == "train_test_split":
        whole = make_table(table.rows, table)
        whole.notes.append(RANDOM_SPLIT)
        return Mapping({"train": whole, "test": make_table(table.rows, whole)})
    if method in ("select", "take", "skip", "head"):
        return _select_rows(table, method, args, keywords)
    if method == "to_dict":
        return make_table(table.rows, table) if table.items else None
    if method == "iterrows":
        pairs = [Sequence("tuple", [Constant(n), row]) for n, row in enumerate(table.items)]
        return Sequence("list", list(pairs))
    return _change_columns(table, method, args, keywords)


def _argument_by_name_or_position(
    args: tuple[Value, ...], keywords: dict[str, Value], position: int, *names: str
) -> Value | None:
    """An argument by one of its names, otherwise by its position; None if it is not given."""
    for name in names:
        if name in keywords:
            return keywords[name]
    return args[position] if position < len(args) else None


def _map_rows(
    table: Table, args: tuple[Value, ...], keywords: dict[str, Value], call: Call
) -> Table | None:
    """`map`: the columns that a function returns, beside those that are there; None if they are not
    known.
    """
    function = _argument_by_name_or_position(args, keywords, 0, "function")
    if function is None:
        return None
    named = _fn_kwargs(keywords)
    removed = _column_names_in_value(keywords.get("remove_columns"))
    if constant_of(keywords.get("batched")) is True:
        mapped = _map_batches(table, function, named, keywords, call)
    else:
        with_number = constant_of(keywords.get("with_indices")) is True
        mapped = []
        for number, row in enumerate(table.rows):
            index = (Constant(number),) if with_number else ()
            mapped.append(
                _row_with_new_columns(
                    row, call(function, (_copy_row_for_function(row), *index), named)
                )
            )
    for before, after in zip(table.rows, mapped, strict=False):
        for name in removed:
            # A column that the function gives again stays, as in `datasets`.
            if name in before.entries and after.entries.get(name) is before.entries[name]:
                del after.entries[name]
    return make_table(mapped, table)


def _fn_kwargs(keywords: dict[str, Value]) -> dict[str, Value]:
    """The arguments in `fn_kwargs` of `map` and `filter`."""
    named = keywords.get("fn_kwargs")
    if not isinstance(named, Mapping):
        return {}
    return {str(name): one for name, one in named.entries.items()}


def _copy_row_for_function(row: Row) -> Row:
    """A copy of a row for a function that may change it."""
    return Row(dict(row.entries), row.rest, row.is_open, place=row.place)


def _row_with_new_columns(row: Row, given: Value) -> Row:
    """A row with the columns that a function returned for it."""
    if isinstance(given, Constant) and given.value is None:
        return _copy_row_for_function(row)
    if not isinstance(given, Mapping):
        return Row(dict(row.entries), row.rest, is_open=True, place=row.place)
    # `datasets` writes each row down when it is made: an object that the next call changes keeps its texts here.
    entries = {
        **row.entries,
        **{name: copy_of_value(one) for name, one in given.entries.items()},
    }
    is_open = row.is_open or given.is_open or given.rest is not None
    return Row(entries, row.rest, is_open, place=row.place)


def copy_of_value(value: Value) -> Value:
    """A copy of a list or dictionary as it is now, so that later changes do not reach it. A row keeps its place, and
    ids their pads; a data set is the same one.
    """
    if isinstance(value, Sequence) and not isinstance(value, Table):
        return replace(value, items=[copy_of_value(one) for one in value.items])
    if isinstance(value, Mapping):
        return replace(value, entries={k: copy_of_value(one) for k, one in value.entries.items()})
    return value


def _map_batches(
    table: Table,
    function: Value,
    named: dict[str, Value],
    keywords: dict[str, Value],
    call: Call,
) -> list[Row]:
    """The rows of `map(batched=True)` with a function of lists of values."""
    size = constant_of(keywords.get("batch_size"))
    size = size if isinstance(size, int) and size > 0 else BATCH_ROWS
    mapped: list[Row] = []
    for start in range(0, len(table.rows), size):
        rows = table.rows[start : start + size]
        names = list(rows[0].entries)
        columns: dict[Any, Value] = {
            name: Sequence("list", [row.entries.get(name, Constant(None)) for row in rows])
            for name in names
        }
        given = call(function, (Row(columns),), named)
        mapped += _rows_of_batched_columns(rows, given)
    return mapped


def _rows_of_batched_columns(rows: list[Row], given: Value) -> list[Row]:
    """The rows of the lists that a batched function returned."""
    made = table_of_column_lists(given, None)
    if made is None:
        return [Row(dict(row.entries), row.rest, is_open=True, place=row.place) for row in rows]
    if len(made.rows) != len(rows):
        return made.rows
    return [_row_with_new_columns(row, new) for row, new in zip(rows, made.rows, strict=True)]


def _filter_rows(
    table: Table, args: tuple[Value, ...], keywords: dict[str, Value], call: Call
) -> Table | None:
    """`filter`: the rows for which a function returns something true; None if that is not known."""
    function = _argument_by_name_or_position(args, keywords, 0, "function")
    if function is None or constant_of(keywords.get("batched")) is True:
        return None
    named = _fn_kwargs(keywords)
    kept: list[Row] = []
    unknown = 0
    for row in table.rows:
        verdict = constant_of(call(function, (_copy_row_for_function(row),), named))
        unknown += verdict is NO_CONSTANT
        if verdict is NO_CONSTANT or verdict:
            kept.append(row)
    made = make_table(kept, table)
    if unknown:
        made.notes.append(f"a filter is not followed: {unknown:,} rows are taken as kept by it")
    return made


def _drop_empty_or_duplicate_rows(
    table: Table, method: str, args: tuple[Value, ...], keywords: dict[str, Value]
) -> Table | None:
    """`dropna` and `drop_duplicates` of a frame; None if they are not known."""
    names = _column_names_in_value(
        _argument_by_name_or_position(args, keywords, 0, "subset")
    ) or list(table.rows[0].entries if table.rows else ())
    kept: list[Row] = []
    seen: list[list[Any]] = []
    for row in table.rows:
        values = [constant_of(row.entries.get(name)) for name in names]
        if any(value is NO_CONSTANT for value in values):
            return None
        is_out = None in values if method == "dropna" else values in seen
        if not is_out:
            kept.append(row)
            seen.append(values)
    return make_table(kept, table)


def _select_rows(
    table: Table, method: str, args: tuple[Value, ...], keywords: dict[str, Value]
) -> Table | None:
    """`select`, `take`, `skip` and `head`; None if they are not known."""
    wanted = constant_of(_argument_by_name_or_position(args, keywords, 0, "indices", "n"))
    if method == "select":
        if not isinstance(wanted, list | tuple):
            return None
        numbers = [n for n in wanted if isinstance(n, int) and n < len(table.items)]
        return make_table([table.rows[n] for n in numbers], table)
    if not isinstance(wanted, int):
        return None
    rows = table.rows[wanted:] if method == "skip" else table.rows[:wanted]
    return make_table(rows, table)


def _change_columns(
    table: Table, method: str, args: tuple[Value, ...], keywords: dict[str, Value]
) -> Table | None:
    """Methods that choose, drop, rename or add columns by name; None for any other."""
    first = _argument_by_name_or_position(
        args, keywords, 0, "column_names", "original_column_name", "column_mapping"
    )
    if method == "rename" and "columns" in keywords:
        first, method = keywords["columns"], "rename_columns"
    if method == "rename_column":
        new = _argument_by_name_or_position(args, keywords, 1, "new_column_name")
        names = (_column_names_in_value(first), _column_names_in_value(new))
        if not (len(names[0]) == len(names[1]) == 1):
            return None
        return _rename_columns(table, {names[0][0]: names[1][0]})
    if method == "rename_columns":
        plain = constant_of(first)
        return _rename_columns(table, plain) if isinstance(plain, dict) else None
    if method in ("remove_columns", "select_columns", "drop"):
        chosen = _column_names_in_value(keywords.get("columns", first))
        if not chosen:
            return None
        if method == "select_columns":
            return _choose_columns_in_order(table, chosen)
        return _drop_columns(table, set(chosen))
    if method == "add_column":
        return add_table_column(table, constant_of(first or keywords.get("name")), args[-1])
    return None


def _choose_columns_in_order(table: Table, names: list[str]) -> Table:
    """The table with these columns, in this order."""
    rows = [
        Row(
            {name: row.entries[name] for name in names if name in row.entries},
            row.rest,
            row.is_open,
            place=row.place,
        )
        for row in table.rows
    ]
    return make_table(rows, table)


def _drop_columns(table: Table, chosen: set[str]) -> Table:
    """The table without these columns."""
    rows = [
        Row(
            {name: one for name, one in row.entries.items() if name not in chosen},
            row.rest,
            row.is_open,
            place=row.place,
        )
        for row in table.rows
    ]
    return make_table(rows, table)


def add_table_column(table: Table, name: Any, values: Value) -> Table | None:
    """The table with one more column; None if its values are not known."""
    if not isinstance(name, str) or not isinstance(values, Sequence) or values.is_open:
        return None
    if len(values.items) != len(table.items):
        return None
    rows = [
        Row({**row.entries, name: value}, row.rest, row.is_open, place=row.place)
        for row, value in zip(table.rows, values.items, strict=True)
    ]
    return make_table(rows, table)


def _rename_columns(table: Table, names: dict[Any, Any]) -> Table:
    """The table with other names of columns."""
    rows = [
        Row(
            {names.get(name, name): one for name, one in row.entries.items()},
            row.rest,
            row.is_open,
            place=row.place,
        )
        for row in table.rows
    ]
    return make_table(rows, table)


def row_or_columns_of_table(table: Table, key: Value) -> Value | None:
    """`table[key]`: a row, a column, or several columns; None if it is not known."""
    if isinstance(key, Slice):
        return None
    plain = constant_of(key)
    if isinstance(plain, str):
        return _column_of_table(table, plain)
    if isinstance(plain, int) and -len(table.items) <= plain < len(table.items):
        return table.items[plain]
    if isinstance(plain, list) and all(isinstance(one, str) for one in plain):
        return _choose_columns_in_order(table, plain)
    return None


def _column_of_table(table: Table, name: str) -> Sequence | None:
    """The values of a column; None where a row lacks it, or there are no rows."""
    column = [row.entries.get(name) for row in table.rows]
    known = [one for one in column if one is not None]
    return Sequence(COLUMN, known) if known and len(known) == len(column) else None


def _column_names_in_value(value: Value | None) -> list[str]:
    """The column names in a value that is one name or a list of names."""
    plain = constant_of(value)
    names = [plain] if isinstance(plain, str) else plain
    if not isinstance(names, list | tuple):
        return []
    return [one for one in names if isinstance(one, str)]
