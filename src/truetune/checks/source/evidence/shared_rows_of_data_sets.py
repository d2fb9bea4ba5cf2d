"""Says which rows of which source a data set holds, and whether two data sets share rows.

How it works: a data set is followed back in the symbolic run to what it was read from. The way
forward again is a list of steps: the source, a split, an order (`shuffle`), a range of rows, one
side of a division, a filter. Two data sets with the same first steps are parted by the first step
in which they differ.

The trade-off: a filter is not evaluated, and percent are not held against numbers of rows. Where a
step leaves it open whether rows are shared, nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from itertools import combinations
from typing import NamedTuple

from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.lists_and_dicts import constant_key_of_index
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Choice,
    Constant,
    Item,
    Opaque,
    Operation,
    Option,
    Result,
    Sequence,
    Slice,
    Value,
)

MAX_STEPS = 24
"""Methods that a data set is followed through; scripts chain about six"""
READERS = (
    "datasets.load_dataset",
    "datasets.load_from_disk",
    "datasets.Dataset.from_*",
    "pandas.read_*",
    "json.load",
    "pickle.load",
)
"""Calls that give rows, the same for the same arguments"""
SAME_ROWS = frozenset(
    (
        "map",
        "with_format",
        "with_transform",
        "set_format",
        "rename_column",
        "rename_columns",
        "remove_columns",
        "select_columns",
        "add_column",
        "cast",
        "cast_column",
        "flatten_indices",
        "reset_index",
        "to_pandas",
        "to_list",
        "copy",
    )
)
"""Methods that give each row again, in the same order"""
ORDERS = frozenset(("shuffle", "sort", "sort_values"))
PARTS = frozenset(("filter", "shard", "query"))
"""Methods that give rows of the data set, of which it is not known here which"""
DIVIDING_METHODS = ("train_test_split",)
DIVIDING_FUNCTIONS = (
    "sklearn.model_selection.train_test_split",
    "torch.utils.data.random_split",
    "torch.utils.data.dataset.random_split",
)
SPLIT = re.compile(
    r"(?P<name>\w+)(?:\[(?P<begin>\d*)(?P<unit>%?):(?P<end>\d*)(?P<end_unit>%?)\])?$"
)
"""`train`, `train[:90%]`, `train[100:]`"""
MAX_SUMS = 3
"""Sums of lists inside sums that are looked into"""
END = float("inf")


class RowStep(NamedTuple):
    """One step from a source of rows to a part of them."""

    kind: str
    """`source`, `split`, `order`, `range`, `side` or `filter`"""
    what: Hashable
    """What tells it from another step of its kind; of a range, begin, end and unit"""


def steps_from_source_to_rows(value: Value) -> tuple[RowStep, ...] | None:
    """The way from a source to these rows; None where it is not known."""
    steps: list[RowStep] = []
    for _ in range(MAX_STEPS):
        if isinstance(value, Choice):
            known = [one for one in value.options if constant_of(one) is not None]
            if len(known) != 1:
                return None
            value = known[0]
        source = _steps_of_source(value)
        if source is not None:
            return _steps_with_file_in_place_of_split(value, (*source, *reversed(steps)))
        inner, step = _source_and_step(value)
        if inner is None:
            # What it comes from is not known; but the same object holds the same rows.
            is_object = isinstance(value, Opaque | Sequence)
            return (RowStep("source", id(value)), *reversed(steps)) if is_object else None
        if step is not None:
            steps.append(step)
        value = inner
    return None


def _steps_with_file_in_place_of_split(
    read: Value, steps: tuple[RowStep, ...]
) -> tuple[RowStep, ...]:
    """The steps with the file instead of its split: two splits of `data_files` may be one file."""
    if not isinstance(read, Result) or len(steps) < 2 or steps[1].kind != "split":
        return steps
    files = constant_of(read.call.keywords.get("data_files"))
    name = steps[1].what
    if not isinstance(files, dict) or not isinstance(name, str) or name not in files:
        return steps
    source = RowStep("source", (read.call.names, "file", repr(files[name])))
    return (source, *steps[2:])


def _steps_of_source(value: Value) -> tuple[RowStep, ...] | None:
    """The first steps of rows that are read; None for anything else."""
    if isinstance(value, Item) and isinstance(value.base, Result):
        call, position = value.base.call, constant_of(value.key)
        splits = constant_of(call.keywords.get("split"))
        if call.named(*READERS) and isinstance(splits, list) and isinstance(position, int):
            return _steps_of_read(call, splits[position]) if position < len(splits) else None
        return None
    if not isinstance(value, Result) or not value.call.named(*READERS):
        return None
    split = constant_of(value.call.keywords.get("split"))
    return _steps_of_read(value.call, None if split is NO_CONSTANT else split)


def _steps_of_read(call: CallEvent, split: object) -> tuple[RowStep, ...] | None:
    """The first steps of rows that a call reads: the source and its split.

    None where the arguments are not known: then each call may read other rows.
    """
    plain: list[Hashable] = [call.names]
    for name, given in (*enumerate(call.args), *sorted(call.keywords.items())):
        if name == "split":
            continue
        constant = constant_of(given)
        # What is not constant may be another file at each call, but the same value is the same file.
        plain.append((name, id(given) if constant is NO_CONSTANT else repr(constant)))
    source = RowStep("source", tuple(plain))
    if not isinstance(split, str):
        return (source,) if split is None else None
    parsed = SPLIT.match(split)
    if parsed is None:
        return None
    steps = (source, RowStep("split", parsed["name"]))
    if "[" not in split:
        return steps
    unit = "%" if "%" in split else "rows"
    begin = int(parsed["begin"] or 0)
    end = int(parsed["end"]) if parsed["end"] else END
    return (*steps, RowStep("range", (begin, end, unit)))


def _source_and_step(value: Value) -> tuple[Value | None, RowStep | None]:
    """What these rows are taken from, and the step that takes them; None where it is not known."""
    if isinstance(value, Item):
        return _source_and_step_of_item(value)
    if not isinstance(value, Result):
        return None, None
    call = value.call
    if call.named("list", "datasets.Dataset.from_list", "datasets.Dataset.from_pandas"):
        return (call.args[0], None) if call.args else (None, None)
    if call.receiver is None:
        return None, None
    if call.method in SAME_ROWS:
        return call.receiver, None
    if call.method in ORDERS:
        return call.receiver, RowStep("order", id(call.node))
    if call.method in PARTS:
        return call.receiver, RowStep("filter", call.number)
    limits = _row_range_of_call(call)
    if limits is not None:
        return call.receiver, RowStep("range", limits)
    # Which rows `select` takes is not known; that they are rows of the same set is.
    return (
        (call.receiver, RowStep("filter", call.number)) if call.method == "select" else (None, None)
    )


def _source_and_step_of_item(value: Item) -> tuple[Value | None, RowStep | None]:
    """One side of a division, a slice of a list, or a split of a dictionary of data sets."""
    base, key = value.base, value.key
    if isinstance(base, Result) and base.call.method in DIVIDING_METHODS:
        return base.call.receiver, RowStep("side", (base.call.number, constant_key_of_index(key)))
    if isinstance(base, Result) and base.call.named(*DIVIDING_FUNCTIONS) and base.call.args:
        return base.call.args[0], RowStep("side", (base.call.number, constant_key_of_index(key)))
    if isinstance(key, Slice):
        limits = _row_range_of_slice(key)
        step = RowStep("filter", id(value)) if limits is None else RowStep("range", limits)
        return base, step
    name = constant_of(key)
    if isinstance(name, str):
        return base, RowStep("split", name)
    # A split whose name is not known is the same one where the same object names it.
    return (base, RowStep("split", id(key))) if isinstance(key, Opaque) else (None, None)


def _row_range_of_call(call: CallEvent) -> tuple[float, float, str] | None:
    """The range of rows that a call gives, as (begin, end, unit): `select(range(a, b))`, `take(n)`,
    `skip(n)`, `head(n)`; None for any other call.
    """
    given = call.args[0] if call.args else None
    if call.method == "select":
        return _row_range_of_range(given)
    count = constant_of(given)
    if not isinstance(count, int):
        return None
    if call.method == "skip":
        return (count, END, "rows")
    return (0, count, "rows") if call.method in ("take", "head") else None


def _row_range_of_range(given: Value | None) -> tuple[float, float, str] | None:
    """The rows of `range(b)` and `range(a, b)`; None where it is another value, or its begin is not
    known.
    """
    if not isinstance(given, Result) or not given.call.named("range"):
        return None
    limits = [constant_of(one) for one in given.call.args]
    if len(limits) == 1:
        limits = [0, *limits]
    if len(limits) != 2 or not isinstance(limits[0], int):
        return None
    # The end is often the number of rows, which is not known.
    return (limits[0], limits[1] if isinstance(limits[1], int) else END, "rows")


def _row_range_of_slice(key: Slice) -> tuple[float, float, str] | None:
    """The range of rows of a slice, `rows[a:b]`, as (begin, end, unit); None where a limit is not
    known or counts from the end.
    """
    begin = 0 if key.start is None else constant_of(key.start)
    end = END if key.stop is None else constant_of(key.stop)
    if key.step is not None or not isinstance(begin, int) or not isinstance(end, int | float):
        return None
    return None if begin < 0 or end < 0 else (begin, end, "rows")


def do_data_sets_share_rows(one: tuple[RowStep, ...], other: tuple[RowStep, ...]) -> bool | None:
    """Do two data sets share rows? None where it is not known."""
    one, other = _steps_without_irrelevant_orders(one), _steps_without_irrelevant_orders(other)
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    if common == 0:
        return None
    rest, other_rest = one[common:], other[common:]
    if not rest or not other_rest:
        # One is the other, or a part of it; all splits together hold each of them.
        return True
    first, second = rest[0], other_rest[0]
    if first.kind == second.kind == "split":
        return False
    if first.kind == second.kind == "side":
        return _division_sides_share_rows(first, second)
    if first.kind == second.kind == "range" and len(rest) == len(other_rest) == 1:
        return _ranges_overlap(first, second)
    return None


def _steps_without_irrelevant_orders(steps: tuple[RowStep, ...]) -> tuple[RowStep, ...]:
    """The steps without an order that no later step depends on."""
    last = max((i for i, step in enumerate(steps) if step.kind in ("range", "side")), default=-1)
    return tuple(step for i, step in enumerate(steps) if step.kind != "order" or i < last)


def _division_sides_share_rows(first: RowStep, second: RowStep) -> bool | None:
    """Do two sides of divisions share rows?

    Those of one division share none; those of two divisions may.
    """
    assert isinstance(first.what, tuple)
    assert isinstance(second.what, tuple)
    return False if first.what[0] == second.what[0] else None


def _ranges_overlap(first: RowStep, second: RowStep) -> bool | None:
    """Do two ranges of the same rows overlap? None where their units differ and it depends on the
    number of rows.
    """
    assert isinstance(first.what, tuple)
    assert isinstance(second.what, tuple)
    begin, end, unit = first.what
    other_begin, other_end, other_unit = second.what
    if unit == other_unit:
        return bool(max(begin, other_begin) < min(end, other_end))
    return True if begin == other_begin == 0 else None


def common_division_and_earlier_repetition(
    train: Value, held: Value
) -> tuple[CallEvent, CallEvent] | None:
    """The call that divides rows into both, and the one that put some of them in several times;
    None without such.
    """
    first, second = _latest_division_of(train), _latest_division_of(held)
    if first is None or second is None or first.node is not second.node:
        return None
    divided = first.receiver if first.method in DIVIDING_METHODS else first.args[0]
    repeats = None if divided is None else call_repeating_rows(divided)
    return None if repeats is None else (first, repeats)


def _latest_division_of(value: Value) -> CallEvent | None:
    """The call that divided the rows of which these are one side, the latest; None where none did."""
    for _ in range(MAX_STEPS):
        if isinstance(value, Item) and isinstance(value.base, Result):
            call = value.base.call
            if call.method in DIVIDING_METHODS or (call.named(*DIVIDING_FUNCTIONS) and call.args):
                return call
        inner, _ = _source_and_step(value)
        if inner is None:
            return None
        value = inner
    return None


def call_repeating_rows(value: Value) -> CallEvent | None:
    """The call that puts some rows several times into this data set: `concatenate_datasets([a, b,
    b])`; else None.
    """
    for _ in range(MAX_STEPS):
        if isinstance(value, Result):
            call = value.call
            if call.named("datasets.concatenate_datasets", "pandas.concat") and call.args:
                return call if _list_repeats_rows(call.args[0]) else None
            if call.method == "repeat":
                count = constant_of(call.argument(0, "num_times"))
                return call if isinstance(count, int) and count > 1 else None
        inner, _ = _source_and_step(value)
        if inner is None:
            return None
        value = inner
    return None


def _list_repeats_rows(listed: Value, depth: int = 0) -> bool:
    """Does a list of data sets hold rows twice: one of them twice, `[rows] * 4`, or a part beside
    the whole?
    """
    if isinstance(listed, Operation):
        if depth > MAX_SUMS:
            return False
        return _is_multiplied_list(listed) or any(
            _list_repeats_rows(one, depth + 1) for one in listed.operands
        )
    if not isinstance(listed, Sequence) or listed.is_open:
        return False
    is_one_twice = len({id(one) for one in listed.items}) < len(listed.items)
    return is_one_twice or _any_two_share_rows(listed.items)


def _any_two_share_rows(sets: Iterable[Value]) -> bool:
    """Do two of several data sets share rows?"""
    ways = [way for one in sets if (way := steps_from_source_to_rows(one)) is not None]
    return any(do_data_sets_share_rows(one, other) for one, other in combinations(ways, 2))


def _is_multiplied_list(listed: Operation) -> bool:
    """Is it a list times a number above one?"""
    if listed.operator != "*":
        return False
    counts = [constant_of(one) for one in listed.operands if isinstance(one, Constant | Option)]
    return any(isinstance(count, int) and count > 1 for count in counts)
