"""Lists of numbers as scripts handle them: repeated, set in part, turned into tensors and back.

The trade-off: a tensor is its list. What a method of tensors computes stays unknown.
"""

from __future__ import annotations

from truetune.source.symbolic_execution.constants import constant_of
from truetune.source.symbolic_execution.values import Constant, Sequence, Slice, Value

MAX_ITEMS = 200_000
"""Of a list that is repeated: far more tokens than a row has"""
SAME_LIST = ("clone", "copy", "tolist", "detach", "contiguous", "long", "int", "cpu", "numpy")
"""Methods of tensors and lists whose result has the same numbers"""
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


def set_items(target: Sequence, key: Value, value: Value) -> bool:
    """Set one item of a list, or a slice of it; False where it is not known which, or what."""
    if not isinstance(key, Slice):
        number = constant_of(key)
        if type(number) is not int or not -len(target.items) <= number < len(target.items):
            return False
        target.items[number] = value
        return True
    limits = [None if one is None else constant_of(one) for one in (key.start, key.stop, key.step)]
    if any(limit is not None and type(limit) is not int for limit in limits) or limits[2] == 0:
        return False
    places = range(len(target.items))[slice(*limits)]
    if isinstance(value, Constant):
        # As tensors do it: one number for all places.
        for place in places:
            target.items[place] = value
        return True
    if not isinstance(value, Sequence) or value.is_open or key.step is not None:
        return False
    # As lists do it, whose length may change.
    target.items[slice(*limits)] = value.items
    return True


def call_tensor(numbers: Sequence, method: str) -> Value | None:
    """What a method of a tensor gives; None where it is not known here."""
    if numbers.is_open:
        return None
    if method in SAME_LIST:
        return Sequence("list", list(numbers.items))
    if method in ("squeeze", "flatten") and len(numbers.items) == 1:
        inner = numbers.items[0]
        return inner if isinstance(inner, Sequence) else None
    return None
