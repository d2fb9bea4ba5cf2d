"""Computes on lists of numbers as scripts do: repeats them, joins them, sets parts of them.

A tensor is a list of its own kind; what only tensors can do is in `compute_tensors_with_numpy`.
"""

from __future__ import annotations

from truetune.data.script_rows.compute_tensors_with_numpy import (
    MAX_ITEMS,
    TENSOR,
    is_tensor,
    set_in_tensor,
)
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.values_of_run import Constant, Sequence, Slice, Value


def repeat_list(one: Value, other: Value) -> Sequence | None:
    """`[-100] * 7`; None for anything else."""
    if not isinstance(one, Sequence):
        one, other = other, one
    times = constant_of(other)
    if not isinstance(one, Sequence) or one.is_open or type(times) is not int:
        return None
    if is_tensor(one):
        return None  # each number is multiplied
    if len(one.items) * max(times, 0) > MAX_ITEMS:
        return None
    return Sequence(one.kind, one.items * times)


def join_number_lists(one: Value, other: Value) -> Sequence | None:
    """`prompt_ids + answer_ids` with all of their items; None for lists of anything else, or far
    too long ones.

    A run that holds no rows keeps the first thousand items of a list, and rows have more tokens than that.
    """
    if not isinstance(one, Sequence) or not isinstance(other, Sequence):
        return None
    if one.is_open or other.is_open or TENSOR in (one.kind, other.kind):
        return None
    items = [*one.items, *other.items]
    are_numbers = all(type(constant_of(item)) is int for item in items)
    return Sequence(one.kind, items) if are_numbers and len(items) <= MAX_ITEMS else None


def extend_number_list(target: Sequence, given: Value) -> bool:
    """Do `ids.extend(answer_ids)`; False if that is not one list of numbers added to another."""
    joined = join_number_lists(target, given)
    if joined is None:
        return False
    target.items[:] = joined.items
    return True


def set_item_or_slice(target: Sequence, key: Value, value: Value) -> bool:
    """Set one item of a list, a slice of it, or a part of a tensor; False if it is not known which, or to what."""
    if is_tensor(target):
        return set_in_tensor(target, key, value)
    if isinstance(key, Slice):
        return _set_slice(target, key, value)
    return _set_one_item(target, key, value)


def _set_one_item(target: Sequence, key: Value, value: Value) -> bool:
    """Do `labels[3] = -100`; False if it is not known which item."""
    number = constant_of(key)
    if type(number) is not int or not -len(target.items) <= number < len(target.items):
        return False
    target.items[number] = value
    return True


def _set_slice(target: Sequence, key: Slice, value: Value) -> bool:
    """Do `labels[:n] = ...`; False if its ends or the items are not known."""
    limits = [None if one is None else constant_of(one) for one in (key.start, key.stop, key.step)]
    if any(limit is not None and type(limit) is not int for limit in limits) or limits[2] == 0:
        return False
    chosen = slice(*limits)
    if isinstance(value, Constant):
        # As tensors do it: one number for all places.
        for place in range(len(target.items))[chosen]:
            target.items[place] = value
        return True
    if not isinstance(value, Sequence) or value.is_open or key.step is not None:
        return False
    # As lists do it, whose length may change.
    target.items[chosen] = value.items
    return True
