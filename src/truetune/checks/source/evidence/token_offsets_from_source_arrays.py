"""Computes where the tokens of an array stand in the array that they come from, in a symbolic run,
and by how many tokens labels are ahead of ids.

How it works: ids and labels are followed back through casts, slices, joins and what is written into
them, to the arrays that nobody made of others. For each of those it is known at which place its
first token stands: in `ids[1:] + [-100]` the first of `ids` stands at -1, in `[-100] * len(prompt)
+ answer` the first of `answer` stands at `len(prompt)`. Two arrays that hold tokens of one source
are compared by the difference of those places.

The trade-off: where two ways of a branch give other places, or a value is made in a way that is not
known here, nothing is said. Ids of which some were replaced are other ids: a model that fills gaps
is given them on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from truetune.checks.source.evidence.batch_field_sources import (
    BatchField,
    batch_field_read,
    item_of_batch_tuple,
    source_of_field,
)
from truetune.checks.source.evidence.token_positions_in_arrays import (
    CASTS,
    KEEPING_METHODS,
    NOTHING,
    START,
    Layout,
    Move,
    Segment,
    filler_length,
    is_filled_with_one_number,
    layout_after_index,
    move_of_call,
    shift_layout,
    slices_tokens_of_rows,
    token_length_of_joined_part,
    token_start_of_index,
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
class TokenWay:
    """How an array is followed."""

    are_labels: bool
    """Some of the tokens may have been replaced by -100"""
    depth: int = 0
    """Steps that were taken up to here"""

    def one_step_deeper(self) -> TokenWay:
        """The way one step deeper."""
        return replace(self, depth=self.depth + 1)


IDS_WAY, LABELS_WAY = TokenWay(False), TokenWay(True)


def tokens_ahead(ids: Layout | None, labels: Layout | None) -> int | None:
    """How many tokens the labels are ahead of the ids at the same place; None where that is not
    known.
    """
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


class TokenLayouts:
    """Questions about the arrays of one run."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def layout_of(self, value: Value, way: TokenWay) -> Layout | None:
        """Where the tokens of an array stand in the array that they come from; an array of which
        nothing is known is its own source.

        Args:
            value: Ids or labels.
            way: IDS_WAY or LABELS_WAY.

        Returns:
            Its segments; None where they are not known.
        """
        if way.depth > MAX_DEPTH:
            return None
        written = self._segments_written_into(value, way)
        if written is None:
            return None
        return tuple(written) or self._layout_before_writes(value, way)

    def layout_of_argument(self, value: Value | BatchField, way: TokenWay) -> Layout | None:
        """The layout of what a model is given, by its name or as a field of a batch."""
        if isinstance(value, BatchField):
            return self.layout_of_field(value, way)
        return self.layout_of(value, way)

    def layout_of_field(self, field: BatchField, way: TokenWay) -> Layout | None:
        """The layout of what a field of a batch holds."""
        source = source_of_field(field)
        if isinstance(source, BatchField):
            return (Segment((id(source.batch), source.name), START),)
        return self.layout_of(source, way.one_step_deeper())

    def _layout_before_writes(self, value: Value, way: TokenWay) -> Layout | None:
        """The layout of an array before anything is written into it."""
        field = batch_field_read(value)
        if field is not None:
            return self.layout_of_field(field, way)
        if isinstance(value, Choice):
            return self._layout_of_choice(value, way)
        if isinstance(value, Sequence):
            return self._layout_of_list(value, way)
        if isinstance(value, Operation):
            return self._layout_of_operation(value, way)
        if isinstance(value, Item):
            return self._layout_of_item(value, way)
        if isinstance(value, Result):
            return self._layout_of_call(value, way)
        if isinstance(value, Element) and slices_tokens_of_rows(value.iterable):
            return self.layout_of(value.iterable, way.one_step_deeper())  # one of its rows
        return (Segment(id(value), START),)

    def _layout_of_choice(self, value: Choice, way: TokenWay) -> Layout | None:
        """The layout that all options of a value have; None where they differ."""
        last = value.options[-1]
        # What a loop or a function made is another value for each pass of the run.
        if all(one.node is last.node for one in value.options):
            return self.layout_of(last, way.one_step_deeper())
        layouts = [self.layout_of(one, way.one_step_deeper()) for one in value.options]
        return layouts[0] if all(one == layouts[0] for one in layouts) else None

    def _layout_of_operation(self, value: Operation, way: TokenWay) -> Layout | None:
        """The layout of a sum of lists, or of a list that is repeated."""
        if value.operator == "+":
            return self._layout_of_join(value.operands, way)
        if value.operator == "*":
            return None if filler_length(value) is None else NOTHING
        return (Segment(id(value), START),)

    def _segments_written_into(self, value: Value, way: TokenWay) -> list[Segment] | None:
        """The tokens that are written into parts of an array; None where it is not known which or
        where.
        """
        segments: dict[Segment, None] = {}
        for store in self._trace.uses(value):
            if not isinstance(store, StoreEvent) or not _writes_tokens(store, value):
                continue
            if isinstance(constant_of(store.value), int):
                if not way.are_labels and not is_filled_with_one_number(value):
                    return None
                continue
            layout = self.layout_of(store.value, way.one_step_deeper())
            start = token_start_of_index(store.key) if isinstance(store.key, Value) else None
            if layout is None or start is None or store.is_augmented:
                return None
            segments.update(dict.fromkeys(shift_layout(layout, start)))
        return list(segments)

    def _layout_of_list(self, value: Sequence, way: TokenWay) -> Layout | None:
        """The layout of a list: of tokens that are constant, of rows, or a part of another list."""
        if value.part_of is not None:
            return self._layout_of_item(value.part_of, way)
        if all(isinstance(one, Constant | Attribute) for one in value.items):
            return NOTHING if value.items else None  # -100, or a stop token behind the text
        last = value.items[-1]
        # A list that is filled in a loop holds one item for each pass of the run.
        if all(one.node is last.node for one in value.items):
            return self.layout_of(last, way.one_step_deeper())
        return (Segment(id(value), START),)

    def _layout_of_join(self, parts: Iterable[Value], way: TokenWay) -> Layout | None:
        """The layout of arrays one behind the other, as far as their lengths are known."""
        segments: list[Segment] = []
        start = START
        for part in parts:
            layout = self.layout_of(part, way.one_step_deeper())
            if layout is None:
                return None
            # The array ends where its last part does: those before it have unknown ends.
            segments = [one._replace(behind=None) for one in segments]
            segments += [one._replace(place=one.place.plus(start)) for one in layout]
            length = token_length_of_joined_part(part)
            if length is None:
                return tuple(one._replace(behind=None) for one in segments)
            start = start.plus(length)
        return tuple(segments)

    def _layout_of_item(self, item: Item, way: TokenWay) -> Layout | None:
        """The layout of a part of an array, or of one array of a batch that is a tuple."""
        array = item_of_batch_tuple(item)
        if array is not None:
            return self.layout_of(array, way.one_step_deeper())
        layout = self.layout_of(item.base, way.one_step_deeper())
        return None if layout is None else layout_after_index(layout, item.key)

    def _layout_of_call(self, value: Result, way: TokenWay) -> Layout | None:
        """The layout of what a call gives."""
        call = value.call
        if is_filled_with_one_number(value):
            return NOTHING
        if call.named(*JOINS):
            parts = call.argument(0, "tensors")
            if isinstance(parts, Sequence) and not parts.is_open:
                return self._layout_of_join(parts.items, way)
        moved = move_of_call(call)
        if moved is not None:
            return self._layout_of_move(moved, way)
        inside = _arrays_kept_in_place(call, way)
        layouts = [self.layout_of(one, way.one_step_deeper()) for one in inside]
        if not layouts:
            return (Segment(id(value), START),)
        # Of two arrays that a mask chooses from, one is full of -100.
        return next((one for one in layouts if one), None)

    def _layout_of_move(self, moved: Move, way: TokenWay) -> Layout | None:
        """The layout of an array whose tokens were rolled or padded."""
        layout = self.layout_of(moved.array, way.one_step_deeper())
        return None if layout is None or moved.by is None else shift_layout(layout, moved.by)


def _writes_tokens(store: StoreEvent, value: Value) -> bool:
    """Does it write tokens into an array, and not a field into a batch or an attribute?"""
    is_name = isinstance(store.key, str) or isinstance(constant_of(store.key), str)
    return store.base is value and not is_name


def _arrays_kept_in_place(call: CallEvent, way: TokenWay) -> list[Value]:
    """The arrays whose tokens a call gives again at the same places; none where it makes other
    ones.
    """
    if call.receiver is not None:
        is_kept = call.method in KEEPING_METHODS
        is_masked = call.method in MASKING_METHODS and way.are_labels
        return [call.receiver] if is_kept or is_masked else []
    if call.named(*CHOOSING_FUNCTIONS) and len(call.args) == 3 and way.are_labels:
        return list(call.args[1:])
    return [call.args[0]] if call.named(*CASTS) and call.args else []
