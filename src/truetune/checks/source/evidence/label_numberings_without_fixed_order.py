"""Finds labels that a script numbers by an order that is not fixed: of a set, of a folder's
listing, of appearance.

How it works: in the symbolic run, what is counted through (`enumerate`, `zip` with `range`,
`names.index(...)`, `names[number]`, `ClassLabel(names=...)`, `factorize`) is followed back to what
gives its order. `sorted` and `sort` fix it. Two numberings by appearance, or by the sorted names of
two files, are compared on the files beside the script.

The trade-off: a number counts as that of a label only where a dictionary or a lookup keeps it, so
that a loop which prints a set is none. Sets of numbers have one order in every process, and are
left alone where the rows show them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from truetune.checks.source.evidence.file_rows_behind_values import FileRows, local_rows_of_value
from truetune.checks.source.evidence.prompt_forms import scripts_beside
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
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

SET, LISTING, APPEARANCE, SORTED = "set", "listing", "appearance", "sorted"
MAX_STEPS = 12
"""Steps from what is counted to what orders it. Chosen, not measured: scripts have three"""
MIN_SHARED = 0.5
"""Share of the labels that two files of one task have in common. Chosen, not measured"""
KEEPING = (
    "list", "tuple", "enumerate", "numpy.array", "numpy.asarray", "pandas.Series", "reversed", "filter", "map",
)  # fmt: skip
KEEPING_METHODS = frozenset(("tolist", "to_list", "copy", "dropna", "astype", "to_numpy", "keys"))
SETS = ("set", "frozenset")
SET_METHODS = frozenset(("union", "intersection", "difference", "symmetric_difference"))
SET_OPERATORS = frozenset(("|", "&", "-", "^"))
LISTINGS = ("os.listdir", "os.scandir", "glob.glob", "glob.iglob", "os.walk")
LISTING_METHODS = frozenset(("iterdir", "glob", "rglob"))
APPEARANCES = ("dict.fromkeys", "collections.Counter", "pandas.unique")
APPEARANCE_METHODS = frozenset(("unique", "factorize", "fromkeys", "value_counts"))
ENCODERS = ("sklearn.preprocessing.LabelEncoder", "sklearn.preprocessing.OrdinalEncoder")
ENCODING_METHODS = frozenset(("fit", "fit_transform"))
UNWRAPPED = (
    *SETS,
    "sorted",
    "list",
    "tuple",
    "numpy.unique",
    "pandas.unique",
    "pandas.factorize",
    *APPEARANCES,
)
"""Functions whose first argument is the column that is numbered, or a list of it"""
LABELS = re.compile(
    r"label|class|categor|intent|topic|sentiment|emotion|target|tag|lang|team|(?:id|idx|ix)2|2(?:id|idx|ix)|"
    r"to_(?:id|idx|ix)|folder|dir",
    re.I,
)
"""Names of what is numbered, in the line or the column"""


class LabelNumbering(NamedTuple):
    """Labels that are numbered."""

    node: ast.AST
    """What gives the order: `set(...)`, `os.listdir(...)`"""
    kind: str
    """SET, LISTING, APPEARANCE or SORTED"""
    order: Value
    module: Module


class DifferentOrders(NamedTuple):
    """Two numberings by appearance whose orders differ in the files."""

    here: LabelNumbering
    other: LabelNumbering
    number: int
    names: tuple[str, str]
    """What the number stands for in the one and in the other"""
    files: tuple[str, str]


def label_numberings(module: Module) -> Iterator[LabelNumbering]:
    """The numberings of labels in a script, each place once."""
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        sorted_in_place = {id(call.receiver) for call in trace.methods("sort")}
        for place, counted in _numbering_places_with_values(trace, module):
            if not _speaks_of_labels(module, place):
                continue
            order = _kind_and_source_of_order(counted, sorted_in_place)
            if order is None or order[1].node is None or order[1].node in seen:
                continue
            seen.add(order[1].node)
            yield LabelNumbering(order[1].node, order[0], order[1], module)


def _numbering_places_with_values(trace: Trace, module: Module) -> Iterator[tuple[ast.AST, Value]]:
    """The places of a run that number labels, each with what is counted through."""
    for call in trace.all_calls:
        if call.home.path == module.path and not call.is_in_later_loop_pass:
            yield from ((call.node, one) for one in _values_numbered_by_call(module, call))
    for value in trace.values:
        if isinstance(value, Item) and _is_name_by_number(value):
            if value.node is not None and module.holds(value.node):
                yield value.node, value.base


def _is_name_by_number(item: Item) -> bool:
    """Is it `names[number]`, one name of a list that the script makes?"""
    return not isinstance(item.key, Constant | Slice | Sequence) and _is_list_made_by_script(
        item.base
    )


def _values_numbered_by_call(module: Module, call: CallEvent) -> Iterator[Value]:
    """What a call counts through, where the numbers are kept."""
    if call.named("enumerate", "zip"):
        if _are_enumerated_pairs_stored_in_dict(module, call.node):
            pair = call.args[: 1 if call.named("enumerate") else 2]
            yield from (one for one in pair if not _is_range_or_count(one))
    elif call.method == "index" and call.receiver is not None:
        yield call.receiver
    elif call.named("datasets.ClassLabel") and "names" in call.keywords:
        yield call.keywords["names"]
    elif _numbers_by_appearance(call) or _numbers_by_sklearn_encoder(call):
        yield call.result


def _numbers_by_appearance(call: CallEvent) -> bool:
    """Does a call number labels in the order in which they appear?"""
    return call.named("pandas.factorize") or call.method == "factorize"


def _numbers_by_sklearn_encoder(call: CallEvent) -> bool:
    """Does a call number labels by an encoder of sklearn?"""
    encoder = call.receiver
    is_encoding = call.method in ENCODING_METHODS and isinstance(encoder, Result)
    return is_encoding and isinstance(encoder, Result) and encoder.call.named(*ENCODERS)


def _is_list_made_by_script(value: Value) -> bool:
    """Is it made a list by the script?"""
    return isinstance(value, Sequence) or (isinstance(value, Result) and value.call.named("list"))


def _is_range_or_count(value: Value) -> bool:
    """Is it `range(...)`, or `count()`?"""
    return isinstance(value, Result) and value.call.named("range", "itertools.count")


def _are_enumerated_pairs_stored_in_dict(module: Module, call: ast.AST) -> bool:
    """Do the pairs that are counted become a dictionary, or entries of one?"""
    parent = module.scopes.parent.get(call)
    if isinstance(parent, ast.comprehension):
        owner = module.scopes.parent.get(parent)
        return isinstance(owner, ast.DictComp)
    if isinstance(parent, ast.Call):
        return isinstance(parent.func, ast.Name) and parent.func.id == "dict"
    if isinstance(parent, ast.For) and parent.iter is call:
        names = {one.id for one in ast.walk(parent.target) if isinstance(one, ast.Name)}
        return any(_stores_name_and_number(one, names) for one in ast.walk(parent))
    return False


def _stores_name_and_number(node: ast.AST, names: set[str]) -> bool:
    """Does a node store a number under a name, or a name under a number: `label2id[name] = number`?"""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Subscript):
        return False
    key = node.targets[0].slice
    parts = [one.id for one in (key, node.value) if isinstance(one, ast.Name)]
    return len(parts) == 2 and set(parts) <= names


def _speaks_of_labels(module: Module, place: ast.AST) -> bool:
    """Does the statement around a numbering, or the function that gives it, speak of labels?"""
    around: ast.AST = place
    for one in module.parents(place):
        around = one
        if isinstance(one, ast.stmt):
            break
    if isinstance(around, ast.For):
        text = " ".join(map(ast.unparse, (around.target, around.iter, around.body[0])))
    elif isinstance(around, ast.FunctionDef | ast.ClassDef | ast.With | ast.If | ast.While):
        text = ast.unparse(place)
    else:
        text = ast.unparse(around)
    if isinstance(around, ast.Return):
        # `def label_map(rows)` says what it gives by its name.
        text += f" {getattr(module.function_around(around), 'name', '')}"
    return LABELS.search(text) is not None


def _kind_and_source_of_order(value: Value, sorted_in_place: set[int]) -> tuple[str, Value] | None:
    """(kind, what gives the order) of a list; None where its order is not known."""
    for _ in range(MAX_STEPS):
        if id(value) in sorted_in_place:
            return SORTED, value
        kind = _kind_of_order_by_itself(value)
        if kind is not None:
            return kind, value
        inner = _source_of_order(value)
        if inner is None:
            return None
        value = inner
    return None


def _kind_of_order_by_itself(value: Value) -> str | None:
    """What kind of order a value has by itself; None where it has that of what it is made of."""
    if isinstance(value, Sequence):
        if value.ordered_by is not None:
            return SORTED
        is_set = value.kind == "set" or isinstance(value.node, ast.SetComp)
        return SET if is_set else None
    if isinstance(value, Operation):
        are_sets = value.operator in SET_OPERATORS and all(
            _kind_of_order_by_itself(one) == SET for one in value.operands
        )
        return SET if are_sets else None
    return _kind_of_order_of_call(value.call) if isinstance(value, Result) else None


def _kind_of_order_of_call(call: CallEvent) -> str | None:
    """What kind of order a call gives; None where it gives that of what it is given."""
    kinds: tuple[tuple[str, tuple[str, ...], frozenset[str]], ...] = (
        (SORTED, ("sorted", "numpy.unique"), frozenset()),
        (SET, SETS, SET_METHODS),
        (LISTING, LISTINGS, LISTING_METHODS),
        (APPEARANCE, (*APPEARANCES, "pandas.factorize"), APPEARANCE_METHODS),
    )
    if _numbers_by_sklearn_encoder(call):
        return SORTED
    return next(
        (kind for kind, names, methods in kinds if call.named(*names) or call.method in methods),
        None,
    )


def _source_of_order(value: Value) -> Value | None:
    """What a list takes its order from; None where that is not known."""
    if isinstance(value, Sequence):
        return value.made_over
    if isinstance(value, Result):
        call = value.call
        if call.named(*KEEPING):
            return call.args[-1] if call.named("filter", "map") else next(iter(call.args), None)
        return call.receiver if call.method in KEEPING_METHODS else None
    if isinstance(value, Item) and isinstance(value.key, Slice):
        return value.base
    return None


def set_holds_numbers_only(numbering: LabelNumbering) -> bool:
    """Are the members of a set numbers, whose order is the same in each process?"""
    order = numbering.order
    if isinstance(order.node, ast.SetComp) and _is_member_cast_to_int(order.node.elt):
        return True
    if isinstance(order, Sequence) and not order.is_open:
        known = [constant_of(one) for one in order.items]
        return bool(known) and all(isinstance(one, int) for one in known)
    cells = ordered_cells_and_file(numbering)
    # A table is read as text here; the script's reader makes numbers of it.
    return cells is not None and all(
        isinstance(one, int) or str(one).isdecimal() for one in cells[0]
    )


def _is_member_cast_to_int(member: ast.expr) -> bool:
    """Is a member of a set made a whole number: `int(row["label"])`?"""
    is_call = isinstance(member, ast.Call) and isinstance(member.func, ast.Name)
    return is_call and ast.unparse(member).startswith(("int(", "len(", "round("))


def ordered_cells_and_file(numbering: LabelNumbering) -> tuple[list[Any], str] | None:
    """(different values in their order, file) of the column that is numbered; None where the rows
    are not here.
    """
    read = _data_and_column(numbering.order)
    if read is None:
        return None
    data, column = read
    rows = local_rows_of_value(numbering.module, data)
    if rows is None or not rows.is_whole:
        return None
    different = _different_label_cells(rows, column)
    if numbering.kind == SORTED:
        different = sorted(different, key=lambda one: (isinstance(one, str), one))
    return (different, rows.source) if different else None


def _different_label_cells(rows: FileRows, column: str) -> list[Any]:
    """The different values of a column in the order of the file; none where one can't be a label."""
    cells = [row[column] for row in rows.rows if column in row]
    if not all(isinstance(one, str | int | float) for one in cells):
        return []
    return list(dict.fromkeys(cells))


def _data_and_column(value: Value) -> tuple[Value, str] | None:
    """(data, column) that a numbering is made of: `unique("intent")`, `frame["intent"].unique()`,
    `frame.intent`.
    """
    for _ in range(MAX_STEPS):
        name = constant_of(value.key) if isinstance(value, Item) else None
        if isinstance(value, Item) and isinstance(name, str):
            return value.base, name
        if isinstance(value, Attribute):
            return value.base, value.name
        named = _data_and_column_of_unique(value)
        if named is not None:
            return named
        inner = _inner_collection(value)
        if inner is None:
            return None
        value = inner
    return None


def _data_and_column_of_unique(value: Value) -> tuple[Value, str] | None:
    """(data, column) of `data.unique("intent")`."""
    if not isinstance(value, Result) or value.call.method != "unique":
        return None
    name = constant_of(value.call.args[0]) if value.call.args else None
    receiver = value.call.receiver
    return (receiver, name) if isinstance(name, str) and receiver is not None else None


def _inner_collection(value: Value) -> Value | None:
    """What a list, a set or the values of a column are made of."""
    if isinstance(value, Sequence):
        return value.items[0] if value.items else value.made_over
    if isinstance(value, Element):
        return value.iterable
    if not isinstance(value, Result):
        return None
    call = value.call
    if call.named(*UNWRAPPED) or _numbers_by_sklearn_encoder(call):
        return next(iter(call.args), None)
    is_of_column = call.method in KEEPING_METHODS or call.method in ("unique", "factorize")
    return call.receiver if is_of_column else None


def numberings_beside(module: Module) -> Iterator[LabelNumbering]:
    """The numberings of the other scripts in the folder."""
    folder = Path(module.path).resolve().parent
    for other in scripts_beside(module):
        if Path(other.path).resolve().parent == folder:
            yield from label_numberings(other)


def first_number_with_different_labels(
    here: LabelNumbering, other: LabelNumbering
) -> DifferentOrders | None:
    """The first number that stands for two labels, where two numberings of one kind are of two
    files.
    """
    if here.kind != other.kind:
        return None
    one, second = ordered_cells_and_file(here), ordered_cells_and_file(other)
    if one is None or second is None or one[1] == second[1]:
        return None
    # Other labels altogether are another task.
    if len(set(one[0]) & set(second[0])) < MIN_SHARED * max(len(one[0]), len(second[0])):
        return None
    pairs = zip(one[0], second[0], strict=False)
    for number, (name, other_name) in enumerate(pairs):
        if name != other_name:
            names = (str(name), str(other_name))
            return DifferentOrders(here, other, number, names, (one[1], second[1]))
    return None
