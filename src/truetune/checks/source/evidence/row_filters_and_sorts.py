"""Finds which filters and sorts a list of rows went through since it was read, in the symbolic run
of a script.

How it works: from a list, a column or a frame back to what was read, step by step: comprehensions,
loops that append, methods of frames and data sets, masks, slices, gathered parts of processes. A
step that leaves rows out or moves them is kept, with what tells it from another step: two lists
with the same tests over the same rows have the same steps.

The trade-off: at the first step that is not known the way ends, and that value is the source.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable
from copy import deepcopy
from typing import Any, Literal, NamedTuple

from truetune.checks.source.evidence.does_every_loop_pass_make_call import end_states_of_body
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Frame, Trace
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Attribute,
    Constant,
    Element,
    Item,
    Mapping,
    Operation,
    Result,
    Sequence,
    Slice,
    Value,
)

ChangeKind = Literal["filter", "order", "parts"]
MAX_STEPS = 24
"""Steps from a list to what was read; scripts chain about eight"""
KEEPING_FUNCTIONS = (
    "list", "tuple", "enumerate", "iter", "tqdm.*", "*.tqdm", "numpy.array", "numpy.asarray", "pandas.Series",
    "pandas.DataFrame", "torch.tensor", "datasets.Dataset.from_pandas", "datasets.Dataset.from_list", "zip",
)  # fmt: skip
KEEPING_METHODS = frozenset(
    (
        "to_list", "tolist", "to_numpy", "copy", "astype", "fillna", "map", "apply", "rename", "rename_column",
        "rename_columns", "remove_columns", "select_columns", "assign", "add_column", "with_format", "iterrows",
        "itertuples", "to_pandas", "to_dict", "lower", "upper", "strip", "replace", "splitlines", "readlines", "round",
    )
)  # fmt: skip
MODEL_METHODS = frozenset(("predict", "predict_proba", "encode", "generate", "__call__", "chat"))
"""Methods that give one result for each row that they are given"""
FILTERING_METHODS = frozenset(
    ("dropna", "drop_duplicates", "query", "filter", "nlargest", "nsmallest", "unique")
)
ORDERING_METHODS = frozenset(("sort_values", "sort", "shuffle", "sort_index", "sample"))
ORDERING_FUNCTIONS = ("sorted", "reversed", "set", "random.sample", "numpy.random.permutation")
SHUFFLES = ("random.shuffle", "numpy.random.shuffle")
GATHERS = ("torch.distributed.all_gather_object", "torch.distributed.gather_object")
GATHERING_FUNCTIONS = ("accelerate.utils.gather_object", "*.gather_object")
FLATTENERS = ("itertools.chain", "itertools.chain.from_iterable", "sum")
ARRAYS = frozenset(("values", "array"))
PLAIN_ATTRIBUTES = frozenset(("iloc", "loc", "str", "columns", "dt"))
READERS = ("open", "pandas.read_*", "datasets.load_dataset", "json.load", "csv.DictReader")


class AlignmentChange(NamedTuple):
    """One step that leaves rows out or moves them."""

    kind: ChangeKind
    what: Hashable
    """What tells it from another step"""
    node: ast.AST


class Alignment(NamedTuple):
    """Where rows come from, and what they went through."""

    source: Hashable
    changes: tuple[AlignmentChange, ...]
    """The latest first"""
    is_positional: bool
    """Is it a list or array, which has no index of rows?"""
    is_renumbered: bool
    """Were the rows numbered again behind a change?"""


def alignment_to_source(trace: Trace, value: Value) -> Alignment:
    """The source that a list of rows comes from, with the filters and sorts that it went through
    since.
    """
    return _AlignmentWalk(trace).walk_to_source(value)


class _AlignmentWalk:
    """One walk back from a list."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.changes: list[AlignmentChange] = []
        self.is_positional = False
        self.has_new_numbers = False
        self.is_renumbered = False

    def walk_to_source(self, value: Value) -> Alignment:
        """Walk back from the list to its source; gives the source, and the filters and sorts on the
        way.
        """
        for _ in range(MAX_STEPS):
            inner = self._rows_that_list_was_made_of(value)
            if inner is None:
                break
            value = inner
        source = _source_identity(value)
        return Alignment(source, tuple(self.changes), self.is_positional, self.is_renumbered)

    def _note_change(self, kind: ChangeKind, what: Hashable, node: ast.AST | None) -> None:
        """Note a step that leaves rows out or moves them."""
        if node is not None:
            self.changes.append(AlignmentChange(kind, what, node))
            self.is_renumbered = self.is_renumbered or self.has_new_numbers

    def _rows_that_list_was_made_of(self, value: Value) -> Value | None:
        """What a list was made of; None at the source."""
        if isinstance(value, Sequence):
            self.is_positional = True
            return self._source_of_list(value)
        if isinstance(value, Constant | Mapping):
            # No list of rows: nothing sorts it. One dictionary may be used in hundreds of calls.
            return None
        self._note_list_shuffles_and_sorts(value)
        if isinstance(value, Result):
            return self._source_of_call(value.call)
        if isinstance(value, Item):
            return self._source_of_item(value)
        if isinstance(value, Attribute):
            self.is_positional = self.is_positional or value.name in ARRAYS
            return value.base
        return None

    def _note_frame_changes_in_place(self, value: Value) -> None:
        """Note the changes instead of a frame, the latest first: `frame.dropna(inplace=True)`, and
        a new numbering after it.
        """
        for use in reversed(list(self.trace.uses(value))):
            if (
                not isinstance(use, CallEvent)
                or use.receiver is not value
                or use.is_in_later_loop_pass
            ):
                continue
            if not _is_flag_argument_true(use, "inplace"):
                continue
            if use.method == "reset_index" or _is_flag_argument_true(use, "ignore_index"):
                self.has_new_numbers = True
            what = (use.method, *(ast.unparse(part) for part in _written_arguments_of(use)))
            if use.method in FILTERING_METHODS:
                self._note_change("filter", what, use.node)
            elif use.method in ORDERING_METHODS:
                self._note_change("order", what, use.node)

    def _note_list_shuffles_and_sorts(self, value: Value) -> None:
        """Note the shuffles and sorts of a list in place: `random.shuffle(rows)`, `rows.sort()`."""
        self._note_frame_changes_in_place(value)
        for use in self.trace.uses(value):
            if not isinstance(use, CallEvent) or use.is_in_later_loop_pass:
                continue
            is_sort = use.method == "sort" and not use.args and use.receiver is value
            if use.named(*SHUFFLES) or (is_sort and _may_be_plain_list(value)):
                self._note_change("order", id(use.node), use.node)

    def _source_of_list(self, value: Sequence) -> Value | None:
        """The rows that a comprehension, or a list that a loop fills, was made of; None at the
        source.
        """
        if value.ordered_by is not None:
            self._note_change("order", id(value.ordered_by.node), value.ordered_by.node)
        self._note_list_shuffles_and_sorts(value)
        node = value.node
        if value.part_of is not None:
            return value.part_of
        if value.made_over is not None and isinstance(node, ast.Call):
            if value.kind == "set":
                self._note_change("order", ast.unparse(node), node)
            return value.made_over
        if value.made_over is not None and isinstance(node, ast.ListComp | ast.GeneratorExp):
            tests = _comprehension_tests_without_names(node)
            if tests:
                self._note_change("filter", tests, node)
            return self._rows_before_gathering(value.made_over)
        return self._iterable_of_filling_loop(value)

    def _iterable_of_filling_loop(self, value: Sequence) -> Value | None:
        """What the loop goes over that fills a list."""
        appends = self._calls_lengthening_list(value) or _calls_whose_results_extend_list(value)
        loops = {id(frame.node): frame for one in appends for frame in _innermost_loop_around(one)}
        if len(loops) != 1:
            return None
        loop = next(iter(loops.values()))
        if any(sum(1 for _ in one.frames("loop")) != _loop_depth(loop) for one in appends):
            return None
        is_one_row = appends[0].receiver is value and appends[0].method == "append"
        if is_one_row and not _does_each_loop_pass_append(appends, loop):
            branch = next(iter(_branches_between_event_and_loop(appends[0], loop)), loop)
            self._note_change("filter", ("loop", id(branch.node)), appends[0].node)
        return None if loop.value is None else self._rows_before_gathering(loop.value)

    def _calls_lengthening_list(self, value: Sequence) -> list[CallEvent]:
        """The calls that a list is made longer by: `rows.append(row)`, `rows.extend(part)`."""
        return [
            use
            for use in self.trace.uses(value)
            if isinstance(use, CallEvent)
            and use.receiver is value
            and use.method in ("append", "extend")
            and not use.is_in_later_loop_pass
        ]

    def _rows_before_gathering(self, value: Value) -> Value:
        """The rows of one process, where a value gathers those of all; else the value itself."""
        for use in self.trace.uses(value):
            if isinstance(use, CallEvent) and use.named(*GATHERS) and len(use.args) > 1:
                return use.args[1] if use.args[0] is value else use.args[0]
        return value

    def _source_of_call(self, call: CallEvent) -> Value | None:
        """What a call took its rows from."""
        first = call.args[0] if call.args else None
        if call.named("range"):
            return _rows_counted_by_range(call)
        if call.named("filter") and len(call.args) == 2:
            self._note_change("filter", id(call.node), call.node)
            return call.args[1]
        if call.named(*ORDERING_FUNCTIONS):
            self.is_positional = True
            self._note_change("order", ast.unparse(call.node), call.node)
            return first
        if call.named(*FLATTENERS) and first is not None:
            return self._rows_before_gathering(first)
        if call.named(*GATHERING_FUNCTIONS) or call.named(*KEEPING_FUNCTIONS):
            return first
        return self._source_of_method(call)

    def _source_of_method(self, call: CallEvent) -> Value | None:
        """What a method took its rows from."""
        if call.method is None:
            return None
        if call.method == "reset_index":
            self.has_new_numbers = True
            return call.receiver
        what = (call.method, *(ast.unparse(part) for part in _written_arguments_of(call)))
        if _is_flag_argument_true(call, "ignore_index"):
            self.has_new_numbers = True
        if call.method in FILTERING_METHODS:
            self._note_change("filter", what, call.node)
            return call.receiver
        if call.method in ORDERING_METHODS:
            self._note_change("order", what, call.node)
            return call.receiver
        if call.method in KEEPING_METHODS:
            is_list = call.method in ("to_list", "tolist", "to_numpy")
            self.is_positional = self.is_positional or is_list
            return call.receiver
        if call.method in MODEL_METHODS and call.args:
            self.is_positional = True
            return call.args[0]
        return None

    def _source_of_item(self, item: Item) -> Value | None:
        """The rows that a column, a mask or a slice is taken from; None at the source."""
        plain = constant_of(item.key)
        if isinstance(plain, str) or (isinstance(plain, list) and plain):
            return item.base
        if isinstance(item.key, Slice):
            return self._note_slice_and_return_source(item, item.key)
        if isinstance(item.key, Operation | Result | Attribute | Item) and plain is NO_CONSTANT:
            if _is_boolean_mask(item.key):
                text = ast.unparse(item.node) if item.node is not None else id(item)
                self._note_change("filter", ("mask", text), item.node)
                return item.base
        return None

    def _note_slice_and_return_source(self, item: Item, key: Slice) -> Value | None:
        """The rows that a slice is taken from, its change noted.

        `rows[:n]` keeps the positions of rows; `rows[rank::world]` and `lines[1::2]` give every so
        many.
        """
        if key.step is None:
            return item.base if key.start is None else None
        step = constant_of(key.step)
        if step is not NO_CONSTANT and _is_negative_step(step):
            return None
        # Slices of one step fit each other, wherever they begin: heads and bodies, questions and answers.
        written = _written_step(key)
        self._note_change("parts", id(item) if written is None else written, key.node)
        return item.base


def _is_flag_argument_true(call: CallEvent, name: str) -> bool:
    """Is a switch of a call on?"""
    argument = call.keywords.get(name)
    return argument is not None and constant_of(argument) is True


def _is_negative_step(step: Any) -> bool:
    """Does a slice go from the end to the begin?"""
    return isinstance(step, int) and step < 0


def _written_step(key: Slice) -> str | None:
    """The step of a slice as it is written."""
    node = key.node
    return ast.unparse(node.step) if isinstance(node, ast.Slice) and node.step else None


def _may_be_plain_list(value: Value) -> bool:
    """May it be a list, whose `sort` works in place? That of a data set gives a new one."""
    return not (isinstance(value, Result) and value.call.named("datasets.*", "pandas.*"))


def _is_boolean_mask(key: Value) -> bool:
    """Is it a column of truth values?"""
    if isinstance(key, Operation):
        return key.operator in ("==", "!=", "<", ">", "<=", ">=", "&", "|", "~", "in", "not in")
    if isinstance(key, Result):
        return key.call.method in (
            "isin", "notna", "isna", "notnull", "contains", "between", "duplicated", "gt", "lt", "eq", "startswith",
        )  # fmt: skip
    return False


def _comprehension_tests_without_names(node: ast.ListComp | ast.GeneratorExp) -> str:
    """The tests of a comprehension, without the names of what it goes over; empty without any."""
    tests = [test for one in node.generators for test in one.ifs]
    names = {
        part.id
        for one in node.generators
        for part in ast.walk(one.target)
        if isinstance(part, ast.Name)
    }
    return " and ".join(ast.unparse(_WithoutNames(names).visit(deepcopy(test))) for test in tests)


class _WithoutNames(ast.NodeTransformer):
    """Puts `_` for some names, so that tests of two loops can be compared whatever they call a row."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """The name, or `_` for one of those."""
        return ast.Name("_", node.ctx) if node.id in self.names else node


def _rows_counted_by_range(call: CallEvent) -> Value | None:
    """The rows that `range(len(rows))` and `range(0, len(rows), 16)` count; None for other numbers."""
    # From another begin on, as in range(rank, len(rows), world), it counts a part of them.
    if len(call.args) > 1 and constant_of(call.args[0]) != 0:
        return None
    # Of three numbers the second is the end, of one the first.
    end = call.args[min(len(call.args) - 1, 1)] if call.args else None
    if isinstance(end, Result) and end.call.named("len") and end.call.args:
        return end.call.args[0]
    return None


def _calls_whose_results_extend_list(rows: Sequence) -> list[CallEvent]:
    """The calls whose results a list is made longer by: `answers += ask(batch)`."""
    added = (one.iterable for one in rows.items if isinstance(one, Element))
    return [
        one.call for one in added if isinstance(one, Result) and not one.call.is_in_later_loop_pass
    ]


def _innermost_loop_around(event: CallEvent) -> list[Frame]:
    """The innermost loop around an event; none where it stands in no loop."""
    loop = next(event.frames("loop"), None)
    return [] if loop is None else [loop]


def _loop_depth(frame: Frame) -> int:
    """Loops around a loop, with itself."""
    return sum(1 for one in frame.self_and_outer_frames() if one.kind == "loop")


def _branches_between_event_and_loop(event: CallEvent, loop: Frame) -> list[Frame]:
    """The arms of tests between an event and a loop around it."""
    inside: list[Frame] = []
    for frame in event.frames():
        if frame.node is loop.node and frame.kind == "loop":
            break
        if frame.kind in ("branch", "try", "except"):
            inside.append(frame)
    return inside


def _does_each_loop_pass_append(appends: list[CallEvent], loop: Frame) -> bool:
    """Does each pass of a loop add to the list?"""
    nodes = frozenset(id(one.node) for one in appends)
    if isinstance(loop.node, ast.For | ast.AsyncFor | ast.While):
        ends = end_states_of_body(loop.node.body, nodes).all_end_states()
        if True in ends:
            return False not in ends
    # The calls stand in a function that the loop calls.
    arms = [_branches_between_event_and_loop(one, loop) for one in appends]
    if any(not branches for branches in arms):
        return True
    taken = {(id(branches[-1].node), branches[-1].taken) for branches in arms}
    return any((node, not is_taken) in taken for node, is_taken in taken)


def _written_arguments_of(call: CallEvent) -> list[ast.AST]:
    """The arguments as they are written."""
    node = call.node
    return [*node.args, *(one.value for one in node.keywords)] if isinstance(node, ast.Call) else []


def _source_identity(value: Value) -> Hashable:
    """A key that tells a source from another: its name for a file, so that two reads of one file
    count as one source.
    """
    if isinstance(value, Result) and value.call.named(*READERS):
        given = [constant_of(one) for one in (*value.call.args, *value.call.keywords.values())]
        plain = (str, bool, int, list, type(None))
        if given and all(isinstance(one, plain) for one in given):
            return (value.call.names, tuple(map(repr, given)))
    return id(value)
