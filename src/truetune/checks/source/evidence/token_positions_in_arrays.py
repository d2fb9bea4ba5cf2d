"""Computes where tokens stand in arrays: positions as sums of numbers and of unknown lengths, and
what an index does to them.

The trade-off: a length or an index that is not known is itself a term of a sum. Two places can be
compared where those terms cancel out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Constant,
    Element,
    Item,
    Operation,
    Result,
    Sequence,
    Slice,
    Value,
)

KEEPING_METHODS = frozenset(
    ("to", "cuda", "cpu", "clone", "detach", "contiguous", "copy", "view", "reshape", "flatten")
    + ("squeeze", "unsqueeze", "long", "int", "float", "half", "bfloat16", "double", "type")
    + ("astype", "tolist", "numpy", "pin_memory", "transpose", "permute", "type_as", "view_as")
)
"""Methods that give the same tokens at the same places"""
CASTS = (
    "torch.tensor",
    "torch.as_tensor",
    "torch.asarray",
    "torch.from_numpy",
    "torch.LongTensor",
    "torch.clone",
    "torch.flatten",
    "torch.reshape",
    "torch.squeeze",
    "torch.unsqueeze",
    "torch.stack",
    "torch.nn.utils.rnn.pad_sequence",
    "numpy.array",
    "numpy.asarray",
    "numpy.stack",
    "list",
    "tuple",
    "copy.copy",
    "copy.deepcopy",
)
"""Functions whose result holds the tokens of their first argument, or of its items, at the same places"""
FILLING_FUNCTIONS = (
    "torch.full",
    "torch.full_like",
    "torch.zeros",
    "torch.zeros_like",
    "torch.ones",
    "torch.ones_like",
    "torch.empty",
    "torch.empty_like",
    "numpy.full",
    "numpy.full_like",
    "numpy.zeros",
    "numpy.ones",
)
FILLING_METHODS = frozenset(("new_full", "new_zeros", "new_ones", "new_empty"))
MAX_CASTS = 12
"""Casts and moves of one array behind one another"""


@dataclass(frozen=True, slots=True)
class TokenPosition:
    """A position in an array: a sum of a number and of values that are not known, each so many
    times.
    """

    number: int = 0
    unknown: tuple[tuple[Hashable, int], ...] = ()

    def plus(self, other: TokenPosition, times: int = 1) -> TokenPosition:
        """The sum of this position and another one, which is taken so many times."""
        terms = Counter(dict(self.unknown))
        for key, count in other.unknown:
            terms[key] += count * times
        unknown = sorted(((key, n) for key, n in terms.items() if n), key=repr)
        return TokenPosition(self.number + other.number * times, tuple(unknown))


START = TokenPosition()


class Segment(NamedTuple):
    """Tokens of one source inside an array."""

    source: Hashable
    place: TokenPosition
    """Where the first token of the source stands, or would stand"""
    picks: tuple[int, ...] = ()
    """Identities of the masks and indices that picked some of the tokens, the latest last"""
    behind: TokenPosition | None = START
    """How many places the array has behind the last token of the source; None where it is not known"""

    def array_length(self) -> TokenPosition | None:
        """The length of the array; None where it is not known."""
        if self.behind is None or self.picks:
            return None
        return self.place.plus(length_of_source(self.source)).plus(self.behind)


Layout = tuple[Segment, ...]
NOTHING: Layout = ()
"""The layout of an array that holds no tokens, such as one of -100"""


def length_of_source(source: Hashable) -> TokenPosition:
    """The length of an array of which no more is known, as a symbol."""
    return TokenPosition(0, ((("length", source), 1),))


def shift_layout(layout: Layout, by: TokenPosition) -> Layout:
    """The layout of an array whose tokens stand so many places further on, and whose end is not known."""
    return tuple(one._replace(place=one.place.plus(by), behind=None) for one in layout)


def layout_after_index(layout: Layout, key: Value) -> Layout | None:
    """The layout of what an index takes of an array; None where it is not known."""
    from_end = _start_from_end(key)
    if from_end is not None:
        lengths = [length for one in layout if (length := one.array_length()) is not None]
        return _sliced(layout, lengths[-1].plus(from_end), key) if lengths else None
    start = token_start_of_index(key)
    if start is not None:
        return _sliced(layout, start, key)
    parts = _index_parts_by_dimension(key)
    if len(parts) > 1 or isinstance(key, Slice):
        return None
    if constant_of(key) is None or isinstance(constant_of(key), int):
        return layout  # one more dimension, or one row of a batch
    return tuple(one._replace(picks=(*one.picks, id(key))) for one in layout)


def _sliced(layout: Layout, start: TokenPosition, key: Value) -> Layout:
    """The layout of a slice that begins at a place; where it ends is known if it counts from the end."""
    stop = _stop_from_end(key)
    return tuple(
        one._replace(
            place=one.place.plus(start, -1),
            behind=None if one.behind is None or stop is None else one.behind.plus(stop),
        )
        for one in layout
    )


def _token_slice(key: Value) -> Slice | None:
    """The slice that an index takes of the tokens: the last one of its dimensions that is cut."""
    slices = [part for part in _index_parts_by_dimension(key) if isinstance(part, Slice)]
    cut = [part for part in slices if part.start is not None or part.stop is not None]
    return cut[0] if len(cut) == 1 else None


def _start_from_end(key: Value) -> TokenPosition | None:
    """The negative position at which a slice of tokens begins; None where it does not count from the end."""
    part = _token_slice(key)
    parts = _index_parts_by_dimension(key)
    if part is None or part.start is None or not _counts_from_end(part.start):
        return None
    is_plain = part.step is None or constant_of(part.step) in (None, 1)
    # A slice of the first of several dimensions takes rows of a batch.
    if not is_plain or (len(parts) > 1 and parts[0] is part) or not _takes_adjacent_tokens(parts):
        return None
    return position_of_number(part.start)


def _stop_from_end(key: Value) -> TokenPosition | None:
    """The position, counted from the end, at which a slice of tokens ends; None where it does not count so."""
    slices = [part for part in _index_parts_by_dimension(key) if isinstance(part, Slice)]
    stops = [part.stop for part in slices if part.stop is not None]
    if not stops:
        return START
    is_known = len(stops) == 1 and _counts_from_end(stops[0])
    return position_of_number(stops[0]) if is_known else None


def _counts_from_end(number: Value) -> bool:
    """Is a number of a slice written as a negative one: `-1`, `-width`, `-width - 1`?"""
    plain = constant_of(number, with_defaults=False)
    if isinstance(plain, int):
        return plain < 0
    if not isinstance(number, Operation):
        return False
    is_negative = number.operator == "-" and len(number.operands) == 1
    is_sum = number.operator in ("+", "-") and len(number.operands) == 2
    return is_negative or (is_sum and _counts_from_end(number.operands[0]))


def slices_tokens_of_rows(value: Value) -> bool:
    """Is an array made by a slice of the tokens of its rows, such as `ids[:, 1:]`?"""
    for _ in range(MAX_CASTS):
        inner = _array_before_cast_or_move(value)
        if inner is None:
            break
        value = inner
    return isinstance(value, Item) and len(_index_parts_by_dimension(value.key)) > 1


def token_start_of_index(key: Value) -> TokenPosition | None:
    """The position at which the tokens begin that an index takes; None where it takes none by a
    slice, or it is not known.
    """
    parts = _index_parts_by_dimension(key)
    starts: list[TokenPosition] = []
    for part in parts:
        start = _start_of_contiguous_slice(part) if isinstance(part, Slice) else START
        if start is None:
            return None
        starts.append(start)
    late = [start for start in starts if start != START]
    # A slice of the first dimension takes rows of a batch, but in an array that has no other.
    cuts_rows = len(parts) > 1 and starts[0] != START
    if cuts_rows or len(late) > 1 or not _takes_adjacent_tokens(parts):
        return None
    return late[0] if late else START


def _takes_adjacent_tokens(parts: list[Value]) -> bool:
    """Does an index take tokens that stand side by side?

    A number picks rows where it stands first, else tokens.
    """
    if not any(isinstance(part, Slice) for part in parts):
        return False
    others = (part for part in parts[1:] if not isinstance(part, Slice))
    return all(constant_of(part) in (..., None) for part in others)


def _index_parts_by_dimension(key: Value) -> list[Value]:
    """The parts of an index, one for each dimension."""
    return key.items if isinstance(key, Sequence) and key.kind == "tuple" else [key]


def _start_of_contiguous_slice(part: Slice) -> TokenPosition | None:
    """The position at which a slice begins; None where it takes every second token, or counts from
    the end.
    """
    if part.step is not None and constant_of(part.step) not in (None, 1):
        return None
    if part.start is None:
        return START
    return None if _counts_from_end(part.start) else position_of_number(part.start)


def position_of_number(value: Value) -> TokenPosition | None:
    """The position that a number, or an expression of numbers, stands for; None where it is none."""
    plain = constant_of(value, with_defaults=False)
    if plain is None:
        return START
    if isinstance(plain, int):
        return TokenPosition(plain)
    if isinstance(value, Operation) and value.operator in ("+", "-"):
        sign = 1 if value.operator == "+" else -1
        if len(value.operands) == 2:
            return _sum_of_positions(value.operands[0], value.operands[1], sign)
        if len(value.operands) == 1 and sign < 0:
            inside = position_of_number(value.operands[0])
            return None if inside is None else START.plus(inside, sign)
    measured_array = _array_measured_by(value)
    if measured_array is not None:
        return symbolic_length(measured_array)
    return TokenPosition(0, ((_identity_of_number(value), 1),))


def _sum_of_positions(left: Value, right: Value, sign: int) -> TokenPosition | None:
    """The first number plus or minus (`sign` -1) the second one; None where one of them is none."""
    first, second = position_of_number(left), position_of_number(right)
    if first is None or second is None:
        return None
    return first.plus(second, sign)


def _identity_of_number(value: Value) -> Hashable:
    """A key that tells an unknown number from others; two loops over one range get the same one."""
    if isinstance(value, Element) and isinstance(value.iterable, Result):
        call = value.iterable.call
        if call.named("range") and not call.is_open:
            return ("range", *(_identity_of_limit(one) for one in call.args))
    return id(value)


def _identity_of_limit(limit: Value) -> Hashable:
    """A key for a limit of a range: the number itself, or what tells it from others."""
    plain = constant_of(limit, with_defaults=False)
    return plain if isinstance(plain, int) else id(limit)


def _array_measured_by(value: Value) -> Value | None:
    """The array whose length a number is: `len(ids)`, `ids.shape[-1]`, `ids.size(1)`; None for
    other numbers.
    """
    if isinstance(value, Item) and isinstance(value.base, Attribute) and value.base.name == "shape":
        return value.base.base
    if not isinstance(value, Result):
        return None
    call = value.call
    if call.named("len") and call.args:
        return call.args[0]
    return call.receiver if call.method in ("size", "numel") else None


def symbolic_length(value: Value) -> TokenPosition:
    """The length of an array of which no more is known, as a symbol."""
    for _ in range(MAX_CASTS):
        inner = _array_before_cast_or_move(value)
        if inner is None:
            break
        value = inner
    if isinstance(value, Item):
        part = _token_slice(value.key)
        start = token_start_of_index(value.key)
        if part is not None and part.stop is None and start is not None:
            return symbolic_length(value.base).plus(start, -1)
    return length_of_source(id(value))


def _array_before_cast_or_move(value: Value) -> Value | None:
    """The array that a cast or a move is given."""
    if not isinstance(value, Result):
        return None
    call = value.call
    if call.method in KEEPING_METHODS:
        return call.receiver
    return call.args[0] if call.named(*CASTS) and call.args else None


def token_length_of_joined_part(value: Value) -> TokenPosition | None:
    """How many tokens a part of a joined array has; None where it is not known."""
    if isinstance(value, Sequence) and not value.is_open:
        is_row = len(value.items) == 1 and not isinstance(value.items[0], Constant | Attribute)
        return None if is_row else TokenPosition(len(value.items))
    if isinstance(value, Operation) and value.operator == "*":
        return filler_length(value)
    if isinstance(value, Operation) and value.operator == "+":
        return _sum_of_lengths(value.operands)
    if isinstance(value, Result) and is_filled_with_one_number(value):
        return _length_of_full_tensor(value.call)
    return symbolic_length(value)


def _sum_of_lengths(parts: tuple[Value, ...]) -> TokenPosition | None:
    """The total length of arrays that are joined; None where one is not known."""
    total = START
    for part in parts:
        length = token_length_of_joined_part(part)
        if length is None:
            return None
        total = total.plus(length)
    return total


def filler_length(value: Operation) -> TokenPosition | None:
    """The length of a filler list, such as `[-100] * len(prompt)`; None for another operation."""
    for filler, count in (value.operands, value.operands[::-1]):
        if isinstance(filler, Sequence) and len(filler.items) == 1:
            is_number = isinstance(filler.items[0], Constant | Attribute)
            return position_of_number(count) if is_number else None
    return None


def is_filled_with_one_number(value: Value) -> bool:
    """Is an array filled with one and the same number?"""
    if isinstance(value, Operation):
        return value.operator == "*" and filler_length(value) is not None
    if not isinstance(value, Result):
        return False
    return value.call.method in FILLING_METHODS or value.call.named(*FILLING_FUNCTIONS)


def _length_of_full_tensor(call: CallEvent) -> TokenPosition | None:
    """The length of the tensor that `torch.full((n,), -100)` or `torch.full_like(prompt, -100)`
    makes; None for other calls.
    """
    if not call.args:
        return None
    given = call.args[0]
    if call.named("*_like"):
        return symbolic_length(given)
    if isinstance(given, Sequence):
        return position_of_number(given.items[-1]) if given.items and not given.is_open else None
    return position_of_number(given)


class Move(NamedTuple):
    """An array whose tokens a call puts at other places."""

    array: Value
    by: TokenPosition | None
    """How far on; None where it is not known"""


def move_of_call(call: CallEvent) -> Move | None:
    """The array that `roll`, `pad` or `narrow` moves, and how far; None for any other call."""
    if call.named("torch.roll", "numpy.roll") and call.args:
        return Move(
            call.args[0], _roll_distance(call.argument(1, "shifts") or call.keywords.get("shift"))
        )
    if call.named("torch.nn.functional.pad") and call.args:
        return Move(call.args[0], _left_padding_width(call.argument(1, "pad")))
    if call.receiver is None:
        return None
    if call.method == "roll":
        return Move(call.receiver, _roll_distance(call.argument(0, "shifts")))
    if call.method == "narrow" and len(call.args) > 1:
        begin = position_of_number(call.args[1])
        return Move(call.receiver, None if begin is None else START.plus(begin, -1))
    return None


def _roll_distance(shifts: Value | None) -> TokenPosition | None:
    """How far `roll` moves tokens; None where it is not known."""
    plain = constant_of(shifts)
    if isinstance(plain, tuple | list) and plain:
        plain = plain[-1]
    return TokenPosition(plain) if isinstance(plain, int) else None


def _left_padding_width(widths: Value | None) -> TokenPosition | None:
    """The width of padding on the left side, which comes first; None where it is not known."""
    first = widths.items[0] if isinstance(widths, Sequence) and widths.items else None
    return None if first is None else position_of_number(first)
