"""Where tokens stand in an array of a symbolic run, beside the array that they come from.

How it works: ids and labels are followed back through casts, slices, joins and what is written into them, to the arrays
that nobody made of others. For each of those it is known at which place its first token stands: in `ids[1:] + [-100]`
the first of `ids` stands at -1, in `[-100] * len(prompt) + answer` the first of `answer` stands at `len(prompt)`. Two
arrays that hold tokens of one source are compared by the difference of those places.

The trade-off: where two ways of a branch give other places, or a value is made in a way that is not known here, nothing
is said. Ids of which some were replaced are other ids: a model that fills gaps is given them on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from truetune.checks.source.evidence.array_places import (
    CASTS,
    KEEPING_METHODS,
    NOTHING,
    START,
    Layout,
    Move,
    Segment,
    cut,
    filler_length,
    is_filler,
    length_of,
    move,
    moved_by,
    start_of,
    takes_tokens_of_rows,
)
from truetune.checks.source.evidence.batches_in_runs import (
    Field,
    field_read,
    item_of_batch,
    source_of_field,
)
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_of_events import CallEvent, StoreEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Choice,
    Constant,
    Element,
    Item,
    Operation,
    Result,
    Sequence,
    Value,
)

MASKING_METHODS = frozenset(("masked_fill", "masked_fill_", "where", "clamp", "clamp_"))
"""Methods that put something else at some places"""
CHOOSING_FUNCTIONS = ("torch.where", "numpy.where")
JOINS = ("torch.cat", "torch.concat", "torch.hstack", "numpy.concatenate", "numpy.hstack")
MAX_DEPTH = 24
"""Casts, slices and joins behind one another: about ten in scripts"""


@dataclass(frozen=True, slots=True)
class Way:
    """How an array is followed."""

    are_labels: bool
    """Some of the tokens may have been replaced by -100"""
    depth: int = 0
    """Steps that were taken up to here"""

    def on(self) -> Way:
        """One step further."""
        return replace(self, depth=self.depth + 1)


IDS_WAY, LABELS_WAY = Way(False), Way(True)


def shift_between(ids: Layout | None, labels: Layout | None) -> int | None:
    """How many tokens the labels are ahead of the ids at the same place; None where that is not known."""
    if ids is None or labels is None:
        return None
    shifts: set[int] = set()
    for one in ids:
        for other in labels:
            if one.source != other.source:
                continue
            ahead = one.place.plus(other.place, -1)
            if ahead.unknown or one.picks != other.picks:
                return None
            shifts.add(ahead.number)
    return shifts.pop() if len(shifts) == 1 else None


class TokenPlaces:
    """Questions about the arrays of one run."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def layout(self, value: Value, way: Way) -> Layout | None:
        """Which tokens stand where in an array; an array of which nothing is known is its own source.

        Args:
            value: Ids or labels.
            way: IDS_WAY or LABELS_WAY.

        Returns:
            Its segments; None where they are not known.
        """
        if way.depth > MAX_DEPTH:
            return None
        written = self._written_into(value, way)
        if written is None:
            return None
        return tuple(written) or self._layout_as_made(value, way)

    def given(self, value: Value | Field, way: Way) -> Layout | None:
        """The layout of what a model is given, by its name or as a field of a batch."""
        if isinstance(value, Field):
            return self.layout_of_field(value, way)
        return self.layout(value, way)

    def layout_of_field(self, field: Field, way: Way) -> Layout | None:
        """The layout of what a field of a batch holds."""
        source = source_of_field(field)
        if isinstance(source, Field):
            return (Segment((id(source.batch), source.name), START),)
        return self.layout(source, way.on())

    def _layout_as_made(self, value: Value, way: Way) -> Layout | None:
        """The layout of an array before anything is written into it."""
        field = field_read(value)
        if field is not None:
            return self.layout_of_field(field, way)
        if isinstance(value, Choice):
            last = value.options[-1]
            # What a loop or a function made is another value for each pass of the run.
            if all(one.node is last.node for one in value.options):
                return self.layout(last, way.on())
            layouts = [self.layout(one, way.on()) for one in value.options]
            return layouts[0] if all(one == layouts[0] for one in layouts) else None
        if isinstance(value, Sequence):
            return self._layout_of_list(value, way)
        if isinstance(value, Operation):
            return self._layout_of_operation(value, way)
        if isinstance(value, Item):
            return self._layout_of_item(value, way)
        if isinstance(value, Result):
            return self._layout_of_call(value, way)
        if isinstance(value, Element) and takes_tokens_of_rows(value.iterable):
            return self.layout(value.iterable, way.on())  # one of its rows
        return (Segment(id(value), START),)

    def _layout_of_operation(self, value: Operation, way: Way) -> Layout | None:
        """The layout of a sum of lists, or of a list that is repeated."""
        if value.operator == "+":
            return self._joined(value.operands, way)
        if value.operator == "*":
            return None if filler_length(value) is None else NOTHING
        return (Segment(id(value), START),)

    def _written_into(self, value: Value, way: Way) -> list[Segment] | None:
        """The tokens that are written into parts of an array; None where it is not known which or where."""
        segments: dict[Segment, None] = {}
        for store in self._trace.uses(value):
            if not isinstance(store, StoreEvent) or not _writes_items(store, value):
                continue
            if isinstance(constant_of(store.value), int):
                if not way.are_labels and not is_filler(value):
                    return None
                continue
            found = self.layout(store.value, way.on())
            start = start_of(store.key) if isinstance(store.key, Value) else None
            if found is None or start is None or store.is_augmented:
                return None
            segments.update(dict.fromkeys(move(found, start)))
        return list(segments)

    def _layout_of_list(self, value: Sequence, way: Way) -> Layout | None:
        """The layout of a list: of tokens that are constant, of rows, or a part of another list."""
        if value.part_of is not None:
            return self._layout_of_item(value.part_of, way)
        if all(isinstance(one, Constant | Attribute) for one in value.items):
            return NOTHING if value.items else None  # -100, or a stop token behind the text
        last = value.items[-1]
        # A list that is filled in a loop holds one item for each pass of the run.
        if all(one.node is last.node for one in value.items):
            return self.layout(last, way.on())
        return (Segment(id(value), START),)

    def _joined(self, parts: Iterable[Value], way: Way) -> Layout | None:
        """The layout of arrays one behind the other, as far as their lengths are known."""
        segments: list[Segment] = []
        start = START
        for part in parts:
            found = self.layout(part, way.on())
            if found is None:
                return None
            segments += move(found, start)
            length = length_of(part)
            if length is None:
                break
            start = start.plus(length)
        return tuple(segments)

    def _layout_of_item(self, item: Item, way: Way) -> Layout | None:
        """The layout of a part of an array, or of one array of a batch that is a tuple."""
        array = item_of_batch(item)
        if array is not None:
            return self.layout(array, way.on())
        found = self.layout(item.base, way.on())
        return None if found is None else cut(found, item.key)

    def _layout_of_call(self, value: Result, way: Way) -> Layout | None:
        """The layout of what a call gives."""
        call = value.call
        if is_filler(value):
            return NOTHING
        if call.named(*JOINS):
            parts = call.argument(0, "tensors")
            if isinstance(parts, Sequence) and not parts.is_open:
                return self._joined(parts.items, way)
        moved = moved_by(call)
        if moved is not None:
            return self._moved(moved, way)
        inside = _arrays_inside(call, way)
        layouts = [self.layout(one, way.on()) for one in inside]
        if not layouts:
            return (Segment(id(value), START),)
        # Of two arrays that a mask chooses from, one is full of -100.
        return next((one for one in layouts if one), None)

    def _moved(self, moved: Move, way: Way) -> Layout | None:
        """The layout of an array whose tokens were rolled or padded."""
        found = self.layout(moved.array, way.on())
        return None if found is None or moved.by is None else move(found, moved.by)


def _writes_items(store: StoreEvent, value: Value) -> bool:
    """Does it write tokens into an array, and not a field into a batch or an attribute?"""
    is_name = isinstance(store.key, str) or isinstance(constant_of(store.key), str)
    return store.base is value and not is_name


def _arrays_inside(call: CallEvent, way: Way) -> list[Value]:
    """The arrays whose tokens a call gives again at the same places; none where it makes other ones."""
    if call.receiver is not None:
        is_kept = call.method in KEEPING_METHODS
        is_masked = call.method in MASKING_METHODS and way.are_labels
        return [call.receiver] if is_kept or is_masked else []
    if call.named(*CHOOSING_FUNCTIONS) and len(call.args) == 3 and way.are_labels:
        return list(call.args[1:])
    return [call.args[0]] if call.named(*CASTS) and call.args else []
