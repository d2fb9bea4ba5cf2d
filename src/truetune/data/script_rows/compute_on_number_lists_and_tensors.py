"""Computes on lists of numbers as scripts do: repeats them, sets parts of them, turns them into
tensors and back.

The trade-off: a tensor is its list. What a method of tensors computes stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from truetune.source.symbolic_execution.fold_constants import BY_SIGN, constant_of
from truetune.source.symbolic_execution.values_of_run import Constant, Sequence, Slice, Value

MAX_ITEMS = 200_000
"""Of a list that is repeated: far more tokens than a row has"""
SAME_LIST = ("clone", "copy", "tolist", "detach", "contiguous", "long", "int", "cpu", "numpy")
"""Methods of tensors and lists whose result has the same numbers"""
TENSOR = "tensor"
"""The kind of a list that is a tensor: comparisons and masks go item by item"""
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
MAKERS_OF_TENSORS = (
    "torch.tensor",
    "torch.LongTensor",
    "torch.as_tensor",
    "numpy.array",
    "numpy.asarray",
)
"""Functions that make a tensor of a list"""


def repeat_list(one: Value, other: Value) -> Sequence | None:
    """`[-100] * 7`; None for anything else."""
    if not isinstance(one, Sequence):
        one, other = other, one
    times = constant_of(other)
    if not isinstance(one, Sequence) or one.is_open or type(times) is not int:
        return None
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
    """Set one item of a list, or a slice of it; False if it is not known which, or to what."""
    if isinstance(key, Sequence) and key.kind == "tuple" and len(key.items) == 2:
        # `labels[row, :n] = ...` of a batch.
        row = _row_of_batch(target, key.items[0])
        return row is not None and set_item_or_slice(row, key.items[1], value)
    if isinstance(key, Sequence) and key.items and isinstance(key.items[0], Sequence):
        return _set_rows_by_masks(target, key, value)
    chosen = _indices_where_mask_is_true(target, key)
    if chosen is not None and isinstance(value, Constant):
        _set_number_at_indices(target, chosen, value)
        return True
    if isinstance(key, Slice):
        return _set_slice(target, key, value)
    return _set_one_item(target, key, value)


def _set_rows_by_masks(target: Sequence, masks: Sequence, value: Value) -> bool:
    """Do `labels[mask] = -100` of a batch, row by row; False if a row or its mask is not known."""
    rows = zip(target.items, masks.items, strict=False)
    return all(
        isinstance(one, Sequence) and set_item_or_slice(one, mask, value) for one, mask in rows
    )


def _set_number_at_indices(target: Sequence, places: Iterable[int], number: Constant) -> None:
    """Set one number at all of these places."""
    for place in places:
        target.items[place] = number


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
        _set_number_at_indices(target, range(len(target.items))[chosen], value)
        return True
    if not isinstance(value, Sequence) or value.is_open or key.step is not None:
        return False
    # As lists do it, whose length may change.
    target.items[chosen] = value.items
    return True


def _row_of_batch(target: Sequence, number: Value) -> Sequence | None:
    """One row of a batch; None if it is not known which."""
    plain = constant_of(number)
    if type(plain) is not int or not -len(target.items) <= plain < len(target.items):
        return None
    row = target.items[plain]
    return row if isinstance(row, Sequence) else None


def _indices_where_mask_is_true(target: Sequence, mask: Value) -> list[int] | None:
    """The indices of a tensor for which a mask is true; None if the key is no mask of its length."""
    plain = constant_of(mask) if isinstance(mask, Sequence) else None
    if not isinstance(plain, list | tuple) or len(plain) != len(target.items):
        return None
    if not all(isinstance(one, bool) for one in plain):
        return None
    return [place for place, is_chosen in enumerate(plain) if is_chosen]


def compare_tensor_with_number(sign: str, operands: tuple[Value, ...]) -> Sequence | None:
    """`labels == pad`, item by item; None if that is no comparison of a tensor with a number."""
    tensor, other = operands if len(operands) == 2 else (None, None)
    number = constant_of(other)
    if sign not in COMPARISONS or not isinstance(tensor, Sequence) or tensor.kind != TENSOR:
        return None
    plain = constant_of(tensor)
    if type(number) not in (int, float) or not isinstance(plain, list):
        return None
    if any(isinstance(one, list) for one in plain):
        return _compare_rows_with_number(sign, tensor, number)
    return Sequence(TENSOR, [Constant(bool(BY_SIGN[sign](one, number))) for one in plain])


def _compare_rows_with_number(sign: str, batch: Sequence, number: float) -> Sequence:
    """A batch compared with a number, row by row; without the rows that are no tensors."""
    rows = [compare_tensor_with_number(sign, (one, Constant(number))) for one in batch.items]
    return Sequence(TENSOR, [one for one in rows if one is not None])


def call_tensor_method(
    numbers: Sequence, method: str, args: tuple[Value, ...] = ()
) -> Value | None:
    """The result of a method of a tensor; None if it is not known."""
    if numbers.is_open:
        return None
    if method in SAME_LIST:
        return Sequence("list" if method == "tolist" else numbers.kind, list(numbers.items))
    if method == "unsqueeze":
        return Sequence(TENSOR, [numbers])
    if method in ("squeeze", "flatten") and len(numbers.items) == 1:
        inner = numbers.items[0]
        return inner if isinstance(inner, Sequence) else None
    if method == "masked_fill" and len(args) == 2:
        changed = Sequence(numbers.kind, list(numbers.items))
        return changed if set_item_or_slice(changed, args[0], args[1]) else None
    return None


def call_torch_function(
    name: str, args: tuple[Value, ...], keywords: dict[str, Value]
) -> Value | None:
    """The result of a function of torch on known lists; None if it is not one of those in the
    table.
    """
    given = args[0] if args else None
    if name in MADE_BY_SIZE or name == "torch.full":
        return _tensor_of_size(name, args)
    if not isinstance(given, Sequence) or given.is_open:
        return None
    if name in MAKERS_OF_TENSORS:
        return as_tensor(given)
    if name in JOINS_ROWS and len(given.items) == 1:
        # Of a batch of one: there is nothing to pad.
        return Sequence(TENSOR, list(given.items))
    fill = _number_that_fills(name, args)
    return None if fill is None else _filled_like(given, fill)


def _number_that_fills(name: str, args: tuple[Value, ...]) -> Any:
    """The number with which a function like `torch.full_like` fills its result; None for any other."""
    fill = FILLED.get(name)
    if fill is None and name == "torch.full_like" and len(args) == 2:
        return constant_of(args[1])
    return fill


def _tensor_of_size(name: str, args: tuple[Value, ...]) -> Sequence | None:
    """`torch.full((rows, width), number)` and the like; None where size or number is not known."""
    plain = [constant_of(one) for one in args]
    size = list(plain[0]) if plain and isinstance(plain[0], list | tuple) else plain
    fill: Any = MADE_BY_SIZE.get(name)
    if name == "torch.full":
        fill = plain[1] if len(plain) > 1 else None
    if fill is None or not _is_small_tensor_size(size):
        return None
    row = Sequence(TENSOR, [Constant(fill) for _ in range(size[-1])])
    if len(size) == 1:
        return row
    return Sequence(TENSOR, [Sequence(TENSOR, list(row.items)) for _ in range(size[0])])


def _is_small_tensor_size(size: list[Any]) -> bool:
    """Are these the one or two sizes of a tensor that is small enough to be kept as lists?"""
    if not 1 <= len(size) <= 2 or not all(type(one) is int for one in size):
        return False
    items: int = size[0] * size[-1]
    return min(size) >= 0 and items <= MAX_ITEMS


def as_tensor(numbers: Sequence) -> Sequence:
    """A list of numbers, or of lists of them, as a tensor."""
    items = [as_tensor(one) if isinstance(one, Sequence) else one for one in numbers.items]
    return Sequence(TENSOR, list(items))


def _filled_like(numbers: Sequence, fill: Any) -> Sequence:
    """A tensor of the same shape that holds one number."""
    items = [
        _filled_like(one, fill) if isinstance(one, Sequence) else Constant(fill)
        for one in numbers.items
    ]
    return Sequence(TENSOR, list(items))


JOINS_ROWS = (
    "torch.stack",
    "torch.nn.utils.rnn.pad_sequence",
    "torch.utils.data.default_collate",
)
MADE_BY_SIZE: dict[str, int] = {"torch.zeros": 0, "torch.ones": 1}
FILLED: dict[str, int] = {"torch.ones_like": 1, "torch.zeros_like": 0}
