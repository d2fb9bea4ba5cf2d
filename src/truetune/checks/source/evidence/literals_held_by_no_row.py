"""Finds literals that a script compares with a column of which no row holds them, where the test
decides a pair or a label.

How it works: the symbolic run leads from the compared side to a column of a file that is here.
Where none of its rows has one of the literals, one arm of the test is never taken. It counts where
the arms pick the sides of a pair, or what a label is made of, and where two or more values of the
column fall on the same side of the test.

The trade-off: a value that is missing may only be absent from this file. So tests that choose a
prompt or drop rows are left alone, and so is a column that the project writes itself, or of which
another test in the same function finds values.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from truetune.checks.source.evidence.column_expression_values import (
    ColumnValues,
    distinct_values_of_expression,
)
from truetune.checks.source.evidence.file_rows_behind_values import local_rows_of_value
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    NO_CONSTANT,
    Element,
    Mapping,
    Operation,
    Parameter,
    Result,
    Value,
    parts_of_value,
)

EQUALITIES = ("==", "!=", "in", "not in")
LABEL_NAMES = frozenset(
    ("label", "labels", "is_good", "desirable", "is_desirable", "thumbs_up", "liked")
)
SIDES = ("chosen", "rejected")
SIDE_WORDS = frozenset(("a", "b", "0", "1", "2", "left", "right", "first", "second"))
"""Last words of columns that tell two answers apart"""
NEUTRAL = re.compile(
    r"(?i)\b(?:tie|tied|draw|equal|same|both|none|null|neither|skip|skipped|unknown|unsure|na|n/a)|^\W*$"
)
"""Values that name no side: scripts drop them or give them to either arm"""
# Chosen, not measured. At half, four rows of an example file make a verdict; at double, small sets of pairs are missed.
MIN_ROWS = 8
MIN_DECIDING = 2
"""Values that fall on the same side: with one alone, the file may simply hold that side of a larger set"""
MAX_SHOWN = 4
"""Values and literals that a message shows. Chosen by hand: more make the line hard to read"""
MAX_PARENTS = 6
"""Expressions between a comparison and what it decides: `not`, `and`, `int()`, a list"""
MAX_STEPS = 400
"""Values on the way back from a cell to its file. Chosen: a cell of a mapped data set has some dozens"""
REWRITES = frozenset(
    ("map", "apply", "transform", "assign", "replace", "with_columns", "rename", "merge", "join")
    + ("rename_column", "rename_columns", "add_column", "set_transform", "with_transform", "pipe")
)
"""Methods on the way that may write another value into the column"""
WORDS = re.compile(r"[A-Za-z]+|\d+")


class TestNoRowPasses(NamedTuple):
    """A test that no row passes, and what it decides."""

    node: ast.AST
    what: str
    remedy: str


class _Test(NamedTuple):
    """One evaluation of a test in a run."""

    node: ast.AST
    cell: Value
    wanted: tuple[Any, ...]
    is_negated: bool = False


class _Arms(NamedTuple):
    """What is done where a test holds, and where it does not."""

    holds: tuple[ast.AST, ...]
    fails: tuple[ast.AST, ...]


def tests_no_row_passes(module: Module) -> Iterator[TestNoRowPasses]:
    """The tests of a file that are never met in the rows here, though a pair or a label hangs on
    them.

    Tests of one column in one function, as those of `elif` and `case`, are one.
    """
    tests = _literal_tests_by_place(module)
    known = {key: _column_values_of_tests(module, group) for key, group in tests.items()}
    unmet: dict[tuple[ast.AST | None, str], list[tuple[_Test, ColumnValues, str]]] = {}
    for key, group in tests.items():
        test, values = group[0], known[key]
        decided = None if values is None else _kind_of_unmet_decision(module, test, values)
        if (
            values is None
            or not decided
            or _same_function_tests_existing_value(module, test, tests, known)
        ):
            continue
        place = (_enclosing_function(module, test.node), values.column)
        unmet.setdefault(place, []).append((test, values, decided))
    for found in unmet.values():
        yield _record_of_tests_no_row_passes(module, found)


def _literal_tests_by_place(module: Module) -> dict[int, list[_Test]]:
    """The tests that stand in a file, by the place, each as all runs evaluate it; none where
    columns have no names.
    """
    own = {id(node) for node in ast.walk(module.tree)}
    tests: dict[int, list[_Test]] = {}
    for trace in traces_of_scripts_that_reach_file(module):
        if _writes_unnamed_columns(trace):
            return {}
        for test in _literal_tests(trace):
            if id(test.node) in own:
                tests.setdefault(id(test.node), []).append(test)
    return tests


def _kind_of_unmet_decision(module: Module, test: _Test, values: ColumnValues) -> str:
    """What a test decides, `pair` or `label`, if no row meets it; empty otherwise."""
    decided = (
        ""
        if _any_row_holds_literal(test, values)
        else _pair_or_label_decided_by_test(module, test.node)
    )
    if not decided or not _named_values_share_an_arm(module, test, values):
        return ""
    return "" if _column_is_written_by_project(module, values.column, test.node) else decided


def _literal_tests(trace: Trace) -> Iterator[_Test]:
    """Comparisons of a run with literals, also those of `match`, `isin`, `eq` and of look-ups with
    a default.
    """
    for value in trace.values:
        if isinstance(value, Operation) and value.operator in EQUALITIES and value.node is not None:
            yield from _literal_tests_of_operation(value)
    for call in trace.all_calls:
        literal_test = _literal_test_of_call(call)
        if literal_test is not None:
            yield literal_test


def _literal_tests_of_operation(value: Operation) -> Iterator[_Test]:
    """The comparisons of an operation with literals: `cell == "a"`, `"a" == cell`, `cell in ("a",
    "b")`.
    """
    if value.node is None or len(value.operands) != 2:
        return
    left, right = value.operands
    is_negated = value.operator.startswith(("!", "not"))
    sides = ((left, right),) if "in" in value.operator else ((left, right), (right, left))
    for cell, other in sides:
        wanted = _compared_literals(other, is_list="in" in value.operator)
        if wanted:
            yield _Test(value.node, cell, wanted, is_negated)
            return


def _literal_test_of_call(call: CallEvent) -> _Test | None:
    """The test of a cell against literals that a call makes; None for other calls.

    `frame.winner.eq("a")`, `frame.winner.isin([...])`, `frame.verdict.map({...})`, `{...}.get(cell,
    0)`.
    """
    if call.receiver is None or not call.args:
        return None
    given = call.args[0]
    if call.method in ("eq", "isin"):
        wanted = _compared_literals(given, is_list=call.method == "isin")
        return _Test(call.node, call.receiver, wanted) if wanted else None
    if call.method == "map" and isinstance(given, Mapping):
        return _literal_test_of_lookup(call, given, call.receiver)
    if call.method == "get" and isinstance(call.receiver, Mapping) and len(call.args) == 2:
        return _literal_test_of_lookup(call, call.receiver, given)
    return None


def _literal_test_of_lookup(call: CallEvent, table: Mapping, cell: Value) -> _Test | None:
    """The test of a cell against the keys of a table that the script writes out, by a look-up of
    the cell.
    """
    if table.is_open or table.rest is not None:
        return None
    keys = tuple(key for key in table.entries if isinstance(key, str | int | float))
    return _Test(call.node, cell, keys) if len(keys) == len(table.entries) > 0 else None


def _compared_literals(value: Value, *, is_list: bool) -> tuple[Any, ...]:
    """The literals that a side is compared with; none where a user may give others."""
    plain = constant_of(value, with_defaults=False)
    if plain is NO_CONSTANT or plain is None:
        return ()
    if is_list:
        return tuple(plain) if isinstance(plain, list | tuple | set | frozenset) else ()
    is_plain = isinstance(plain, str | int | float) and not isinstance(plain, bool)
    return (plain,) if is_plain else ()


def _column_values_of_tests(module: Module, group: list[_Test]) -> ColumnValues | None:
    """The values that a test meets in all runs; None where they are not known in one, or are of
    several files.
    """
    common_values: ColumnValues | None = None
    for test in group:
        values = distinct_values_of_expression(module, test.cell)
        if values is None or _column_may_be_rewritten(test.cell, values.column):
            return None
        if common_values is not None and (values.source, values.column) != (
            common_values.source,
            common_values.column,
        ):
            return None
        common_values = values
    return common_values


def _column_may_be_rewritten(cell: Value, column: str) -> bool:
    """Does the way back from a cell to its file pass through a method that may write the column
    again?
    """
    pending, seen = [cell], set[int]()
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if len(seen) > MAX_STEPS:
            return True
        call = getattr(one, "call", None)
        if (
            isinstance(call, CallEvent)
            and call.method in REWRITES
            and not _map_adds_only_other_columns(call, column)
        ):
            return True
        if isinstance(one, Parameter) and one.given_by is not None:
            pending.extend(one.given_by.inputs[:1])
        else:
            pending.extend(parts_of_value(one))
    return False


def _writes_unnamed_columns(trace: Trace) -> bool:
    """Does a run write columns of rows that no literal names: `{k: clean(v) for k, v in
    row.items()}`, `row[k] = ...`?

    The run itself takes such rows for those of the file.
    """
    for call in trace.all_calls:
        given = [value for _, value in call.returned_by_callbacks]
        if call.method in REWRITES and any(
            isinstance(one, Mapping) and one.is_open for one in given
        ):
            return True
    return any(
        isinstance(event.key, Value)
        and _is_row(event.base)
        and constant_of(event.key) is NO_CONSTANT
        for event in trace.stores
    )


def _is_row(value: Value) -> bool:
    """Is it a row: an element of what is iterated, a line that was parsed, or a copy of one?"""
    if not isinstance(value, Result):
        return isinstance(value, Element)
    return value.call.named("json.loads", "dict") or value.call.method == "copy"


def _map_adds_only_other_columns(call: CallEvent, column: str) -> bool:
    """Is it a `map` whose function gives other columns alone, all of which are seen?"""
    given = [value for _, value in call.returned_by_callbacks]
    return (
        call.method == "map"
        and bool(given)
        and all(
            isinstance(one, Mapping)
            and not one.is_open
            and one.rest is None
            and column not in one.entries
            for one in given
        )
    )


def _any_row_holds_literal(test: _Test, values: ColumnValues) -> bool:
    """Does a row hold one of the literals?"""
    return any(one == other for one in values.values for other in test.wanted)


def _row_counts_by_value(module: Module, test: _Test, values: ColumnValues) -> Counter[Any]:
    """The rows of each value; empty where they are not all read."""
    rows = local_rows_of_value(module, test.cell)
    if rows is None or not rows.is_whole or len(rows.rows) < MIN_ROWS:
        return Counter()
    return Counter(str(row.get(values.column)) for row in rows.rows)


def _named_values_share_an_arm(module: Module, test: _Test, values: ColumnValues) -> bool:
    """Do two values that name something, each of several rows, come out of the test alike?"""
    counts = _row_counts_by_value(module, test, values)
    # A value of one row is a slip of the pen.
    deciding = [one for one, count in counts.items() if count > 1 and not NEUTRAL.search(one)]
    return len(deciding) >= MIN_DECIDING


def _same_function_tests_existing_value(
    module: Module,
    test: _Test,
    tests: dict[int, list[_Test]],
    known: dict[int, ColumnValues | None],
) -> bool:
    """Does the same function ask the column for a value that rows hold, so that this one is an
    older spelling?
    """
    around = _enclosing_function(module, test.node)
    for key, group in tests.items():
        other, values = group[0], known[key]
        if other.node is test.node or _enclosing_function(module, other.node) is not around:
            continue
        names_a_side = any(not NEUTRAL.search(str(one)) for one in other.wanted)
        if names_a_side and (values is None or _any_row_holds_literal(other, values)):
            return True
    return False


def _enclosing_function(module: Module, node: ast.AST) -> ast.AST | None:
    """The function that a node stands in."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    return next((one for one in module.parents(node) if isinstance(one, kinds)), None)


def _column_is_written_by_project(module: Module, column: str, test: ast.AST) -> bool:
    """Does the project write the column, so that its values in the file are not those of the test?"""
    for part in module.self_and_files_run_together:
        for node in part.nodes(ast.Constant):
            if node.value == column and not _column_name_is_only_read(part, node, test):
                return True
        for stored in part.nodes(ast.Attribute):
            if stored.attr == column and isinstance(stored.ctx, ast.Store):
                return True
    return False


def _column_name_is_only_read(module: Module, name: ast.Constant, test: ast.AST) -> bool:
    """Does the name of a column read it (`row["winner"]`, `row.get("winner")`), or name what the
    test makes?
    """
    parent = module.scopes.parent.get(name)
    if isinstance(parent, ast.Subscript):
        return isinstance(parent.ctx, ast.Load) or _node_holds(
            _value_stored_in(module, parent), test
        )
    if isinstance(parent, ast.Dict):
        pairs = zip(parent.keys, parent.values, strict=True)
        return any(key is name and _node_holds(value, test) for key, value in pairs)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
        return parent.func.attr == "get" and parent.args[:1] == [name]
    return False


def _value_stored_in(module: Module, target: ast.AST) -> ast.AST | None:
    """What is stored in a target."""
    parent = module.scopes.parent.get(target)
    return parent.value if isinstance(parent, ast.Assign) else None


def _node_holds(around: ast.AST | None, node: ast.AST) -> bool:
    """Does one node hold another?"""
    return around is not None and any(one is node for one in ast.walk(around))


def _pair_or_label_decided_by_test(module: Module, test: ast.AST) -> str:
    """What a test decides: `pair`, `label`, or empty for neither."""
    if _test_makes_label(module, test):
        return "label"
    is_of_pairs = all(module.mentions(side) for side in SIDES)
    for arms in _arms_of(module, test):
        if any(_arm_sets_constant_label(one) for one in (*arms.holds, *arms.fails)):
            return "label"
        if is_of_pairs and _arms_pick_sides(arms):
            return "pair"
    return ""


def _test_makes_label(module: Module, test: ast.AST) -> bool:
    """Is the result of a test, or of its arms as one expression, the value of a label?"""
    child, parents = test, module.scopes.parent
    for _ in range(MAX_PARENTS):
        parent = parents.get(child)
        if isinstance(parent, ast.Dict):
            pairs = zip(parent.keys, parent.values, strict=True)
            return any(value is child and _is_label_name(key) for key, value in pairs)
        if isinstance(parent, ast.keyword):
            if parent.arg in LABEL_NAMES:
                return True
        elif isinstance(parent, ast.Assign):
            return any(_is_label_target(target) for target in parent.targets)
        elif not isinstance(
            parent, ast.Call | ast.IfExp | ast.List | ast.BoolOp | ast.UnaryOp | ast.Attribute
        ):
            return False
        if parent is None:
            return False
        child = parent
    return False


def _is_label_name(node: ast.AST | None) -> bool:
    """Is it the name of a column of labels?"""
    return isinstance(node, ast.Constant) and node.value in LABEL_NAMES


def _is_label_target(node: ast.AST) -> bool:
    """Does an assignment target store a label: `label = ...`, `row["label"] = ...`?"""
    if isinstance(node, ast.Subscript):
        return _is_label_name(node.slice)
    return isinstance(node, ast.Name) and node.id in LABEL_NAMES


def _arm_sets_constant_label(arm: ast.AST) -> bool:
    """Does an arm give a label a constant: `label = True`, `{"label": 0}`?"""
    for node in ast.walk(arm):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            if any(_is_label_target(target) for target in node.targets):
                return True
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            if any(_is_label_name(key) and isinstance(one, ast.Constant) for key, one in pairs):
                return True
    return False


def _arms_of(module: Module, test: ast.AST) -> Iterator[_Arms]:
    """The arms that a test chooses between, also where its result has a name first."""
    yield from _arms_of_lookup(module, test)
    child, parents = test, module.scopes.parent
    for _ in range(MAX_PARENTS):
        parent = parents.get(child)
        if parent is None:
            return
        arms = _arms_of_parent(module, parent, child)
        if arms is not None:
            yield arms
            return
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            target = parent.targets[0]
            if isinstance(target, ast.Name):
                yield from _arms_of_name(module, target)
            return
        child = parent


def _arms_of_parent(module: Module, parent: ast.AST, child: ast.AST) -> _Arms | None:
    """The arms of one expression or statement whose test a node is."""
    if isinstance(parent, ast.IfExp) and parent.test is child:
        return _Arms((parent.body,), (parent.orelse,))
    if isinstance(parent, ast.If) and parent.test is child:
        exchange = _arms_of_conditional_tuple_assignment(parent)
        if exchange is not None:
            return exchange
        return _Arms(
            tuple(parent.body), tuple(parent.orelse) or _statements_after_leaving_if(module, parent)
        )
    if isinstance(parent, ast.match_case):
        return _arms_of_case(module, parent)
    if isinstance(parent, ast.Call) and parent.args[:1] == [child]:
        return _arms_of_where(parent)
    return _arms_of_index(parent, child)


def _arms_of_case(module: Module, case: ast.match_case) -> _Arms:
    """The arms of a `match` case: its body, and all others."""
    match = module.scopes.parent.get(case)
    cases = match.cases if isinstance(match, ast.Match) else []
    others = [part for one in cases if one is not case for part in one.body]
    return _Arms(tuple(case.body), tuple(others))


def _arms_of_lookup(module: Module, test: ast.AST) -> Iterator[_Arms]:
    """The arms of a look-up of a cell in a table: each entry, and the default.

    `{"a": ("one", "two"), ...}.get(cell, ("two", "one"))`.
    """
    if not isinstance(test, ast.Call) or not isinstance(test.func, ast.Attribute):
        return
    if test.func.attr != "get" or len(test.args) != 2:
        return
    for origin in module.flow.origins(test.func.value):
        if isinstance(origin.node, ast.Dict):
            yield from (_Arms((value,), (test.args[1],)) for value in origin.node.values)


def _arms_of_conditional_tuple_assignment(branch: ast.If) -> _Arms | None:
    """The arms of an `if` without `else` that assigns to a tuple: the value, and the target itself.

    `if is_second: a, b = b, a`.
    """
    if branch.orelse:
        return None
    for one in branch.body:
        target = one.targets[0] if isinstance(one, ast.Assign) else None
        if isinstance(one, ast.Assign) and isinstance(target, ast.Tuple):
            return _Arms((one.value,), (target,))
    return None


def _arms_of_where(call: ast.Call) -> _Arms | None:
    """The two arms of a `where` call: `np.where(test, one, other)`, `one.where(test, other)`; None
    for any other call.
    """
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "where":
        return None
    if len(call.args) == 3:
        return _Arms((call.args[1],), (call.args[2],))
    return _Arms((call.func.value,), (call.args[1],)) if len(call.args) == 2 else None


def _arms_of_index(parent: ast.AST, child: ast.AST) -> _Arms | None:
    """The arms of a pair that is indexed by a test: `(b, a)[row["winner"] == "a"]`; None otherwise."""
    if not isinstance(parent, ast.Subscript) or parent.slice is not child:
        return None
    pair = parent.value
    if isinstance(pair, ast.Tuple | ast.List) and len(pair.elts) == 2:
        return _Arms((pair.elts[1],), (pair.elts[0],))
    return None


def _statements_after_leaving_if(module: Module, branch: ast.If) -> tuple[ast.AST, ...]:
    """What follows an `if` without `else` whose body leaves: the other arm."""
    leaves = isinstance(branch.body[-1], ast.Return | ast.Continue | ast.Break | ast.Raise)
    block = module.scopes.parent.get(branch)
    body = getattr(block, "body", None)
    if not leaves or not isinstance(body, list) or branch not in body:
        return ()
    return tuple(body[body.index(branch) + 1 :])


def _arms_of_name(module: Module, target: ast.Name) -> Iterator[_Arms]:
    """The arms of the tests in the same function that are a name."""
    around = _enclosing_function(module, target) or module.tree
    for node in ast.walk(around):
        if isinstance(node, ast.Name) and node.id == target.id and isinstance(node.ctx, ast.Load):
            child: ast.AST = node
            parent = module.scopes.parent.get(child)
            if isinstance(parent, ast.UnaryOp):
                child, parent = parent, module.scopes.parent.get(parent)
            arms = None if parent is None else _arms_of_parent(module, parent, child)
            if arms is not None:
                yield arms


def _arms_pick_sides(arms: _Arms) -> bool:
    """Do two arms name the same things in another order, or answers of different sides?"""
    one, other = _names_read_in_order(arms.holds), _names_read_in_order(arms.fails)
    if not one or not other or one == other:
        return False
    if len(one) > 1 and sorted(one) == sorted(other):
        return True
    sides = [_answer_sides_in_names(names) for names in (one, other)]
    return all(sides) and sides[0] != sides[1]


def _names_read_in_order(arm: tuple[ast.AST, ...]) -> list[str]:
    """The columns, attributes, names and places that an arm reads, in the order of the text."""
    names: list[str] = []
    for statement in arm:
        for node in _walk_in_text_order(statement):
            if isinstance(node, ast.Name):
                names.append(node.id)
            elif isinstance(node, ast.Attribute):
                names.append(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str | int):
                names.append(str(node.value))
    return names


def _walk_in_text_order(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all nodes inside, in the order of the text."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _walk_in_text_order(child)


def _answer_sides_in_names(names: list[str]) -> list[str]:
    """The sides that names speak of, in their order: `a` of `response_a`."""
    spaced = (re.sub(r"([a-z])([A-Z])", r"\1_\2", name) for name in names)
    last = [WORDS.findall(name)[-1:] for name in spaced]
    return [one[0].lower() for one in last if one and one[0].lower() in SIDE_WORDS]


def _record_of_tests_no_row_passes(
    module: Module, found: list[tuple[_Test, ColumnValues, str]]
) -> TestNoRowPasses:
    """What to say of the tests of one column in one function."""
    test, values, decided = found[0]
    counts = _row_counts_by_value(module, test, values)
    shown = ", ".join(f"{value!r} ({count:,})" for value, count in counts.most_common(MAX_SHOWN))
    rest = ", ..." if len(counts) > MAX_SHOWN else ""
    literals = dict.fromkeys(literal for one, _, _ in found for literal in one.wanted)
    wanted = " or ".join(repr(one) for one in list(literals)[:MAX_SHOWN])
    always = "always" if test.is_negated else "never"
    effect = (
        "the same side is chosen in every pair, whichever answer is better, so the labels are random"
        if decided == "pair"
        else "every row gets the same label"
    )
    what = (
        f"the comparison is {always} true: no row of {values.source} has {wanted} in `{values.column}`, which contains"
        f" {shown}{rest}; {effect}"
    )
    naming = [value for value, _ in counts.most_common(MAX_SHOWN) if not NEUTRAL.search(value)]
    return TestNoRowPasses(
        test.node,
        what,
        "compare with the values in the column"
        f" ({', '.join(map(repr, naming))}), build the rows again, and train again",
    )
