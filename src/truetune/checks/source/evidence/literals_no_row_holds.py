"""Literals that a script compares with a column of which no row holds them, where the test decides a pair or a label.

How it works: the symbolic run leads from the compared side to a column of a file that is here. Where none of its rows
has one of the literals, one arm of the test is never taken. It counts where the arms pick the sides of a pair, or what
a label is made of, and where two or more values of the column fall on the same side of the test.

The trade-off: a value that is missing may only be absent from this file. So tests that choose a prompt or drop rows are
left alone, and so is a column that the project writes itself, or of which another test in the same function finds
values.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from truetune.checks.source.evidence.column_values_in_runs import ColumnValues, column_values
from truetune.checks.source.evidence.rows_behind_values import rows_behind
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.kept_traces import traces_of
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


class UnmetTest(NamedTuple):
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


def unmet_tests(module: Module) -> Iterator[UnmetTest]:
    """The tests of a file that are never met in the rows here, though a pair or a label hangs on them.

    Tests of one column in one function, as those of `elif` and `case`, are one.
    """
    tests = _tests_of_file(module)
    known = {key: _values_of_tests(module, group) for key, group in tests.items()}
    unmet: dict[tuple[ast.AST | None, str], list[tuple[_Test, ColumnValues, str]]] = {}
    for key, group in tests.items():
        test, values = group[0], known[key]
        decided = None if values is None else _what_is_never_met(module, test, values)
        if values is None or not decided or _another_test_is_met(module, test, tests, known):
            continue
        place = (_function_around(module, test.node), values.column)
        unmet.setdefault(place, []).append((test, values, decided))
    for found in unmet.values():
        yield _describe(module, found)


def _tests_of_file(module: Module) -> dict[int, list[_Test]]:
    """The tests that stand in a file, by the place, each as all runs evaluate it; none where columns have no names."""
    own = {id(node) for node in ast.walk(module.tree)}
    tests: dict[int, list[_Test]] = {}
    for trace in traces_of(module):
        if _writes_unnamed_columns(trace):
            return {}
        for test in _tests(trace):
            if id(test.node) in own:
                tests.setdefault(id(test.node), []).append(test)
    return tests


def _what_is_never_met(module: Module, test: _Test, values: ColumnValues) -> str:
    """`pair` or `label`, where a test that decides one is met by no row; else nothing."""
    decided = "" if _is_met(test, values) else _what_is_decided(module, test.node)
    if not decided or not _falls_on_one_side(module, test, values):
        return ""
    return "" if _is_written_by_project(module, values.column, test.node) else decided


def _tests(trace: Trace) -> Iterator[_Test]:
    """Comparisons of a run with literals, also those of `match`, `isin`, `eq` and of look-ups with a default."""
    for value in trace.values:
        if isinstance(value, Operation) and value.operator in EQUALITIES and value.node is not None:
            yield from _tests_of_operation(value)
    for call in trace.all_calls:
        found = _test_of_call(call)
        if found is not None:
            yield found


def _tests_of_operation(value: Operation) -> Iterator[_Test]:
    """`cell == "a"`, `"a" == cell`, `cell in ("a", "b")`."""
    if value.node is None or len(value.operands) != 2:
        return
    left, right = value.operands
    is_negated = value.operator.startswith(("!", "not"))
    sides = ((left, right),) if "in" in value.operator else ((left, right), (right, left))
    for cell, other in sides:
        wanted = _literals(other, is_list="in" in value.operator)
        if wanted:
            yield _Test(value.node, cell, wanted, is_negated)
            return


def _test_of_call(call: CallEvent) -> _Test | None:
    """`frame.winner.eq("a")`, `frame.winner.isin([...])`, `frame.verdict.map({...})`, `{...}.get(cell, 0)`."""
    if call.receiver is None or not call.args:
        return None
    given = call.args[0]
    if call.method in ("eq", "isin"):
        wanted = _literals(given, is_list=call.method == "isin")
        return _Test(call.node, call.receiver, wanted) if wanted else None
    if call.method == "map" and isinstance(given, Mapping):
        return _test_of_keys(call, given, call.receiver)
    if call.method == "get" and isinstance(call.receiver, Mapping) and len(call.args) == 2:
        return _test_of_keys(call, call.receiver, given)
    return None


def _test_of_keys(call: CallEvent, table: Mapping, cell: Value) -> _Test | None:
    """A look-up of a cell in a table that the script writes out."""
    if table.is_open or table.rest is not None:
        return None
    keys = tuple(key for key in table.entries if isinstance(key, str | int | float))
    return _Test(call.node, cell, keys) if len(keys) == len(table.entries) > 0 else None


def _literals(value: Value, *, is_list: bool) -> tuple[Any, ...]:
    """The literals that a side is compared with; none where a user may give others."""
    plain = constant_of(value, with_defaults=False)
    if plain is NO_CONSTANT or plain is None:
        return ()
    if is_list:
        return tuple(plain) if isinstance(plain, list | tuple | set | frozenset) else ()
    is_plain = isinstance(plain, str | int | float) and not isinstance(plain, bool)
    return (plain,) if is_plain else ()


def _values_of_tests(module: Module, group: list[_Test]) -> ColumnValues | None:
    """The values that a test meets in all runs; None where they are not known in one, or are of several files."""
    found: ColumnValues | None = None
    for test in group:
        values = column_values(module, test.cell)
        if values is None or _may_be_rewritten(test.cell, values.column):
            return None
        if found is not None and (values.source, values.column) != (found.source, found.column):
            return None
        found = values
    return found


def _may_be_rewritten(cell: Value, column: str) -> bool:
    """Does the way back from a cell to its file pass through a method that may write the column again?"""
    pending, seen = [cell], set[int]()
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if len(seen) > MAX_STEPS:
            return True
        call = getattr(one, "call", None)
        if isinstance(call, CallEvent) and call.method in REWRITES and not _adds(call, column):
            return True
        if isinstance(one, Parameter) and one.given_by is not None:
            pending.extend(one.given_by.inputs[:1])
        else:
            pending.extend(parts_of_value(one))
    return False


def _writes_unnamed_columns(trace: Trace) -> bool:
    """Does a run write columns of rows that no literal names: `{k: clean(v) for k, v in row.items()}`, `row[k] = ...`?

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


def _adds(call: CallEvent, column: str) -> bool:
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


def _is_met(test: _Test, values: ColumnValues) -> bool:
    """Does a row hold one of the literals?"""
    return any(one == other for one in values.values for other in test.wanted)


def _counts(module: Module, test: _Test, values: ColumnValues) -> Counter[Any]:
    """The rows of each value; empty where they are not all read."""
    rows = rows_behind(module, test.cell)
    if rows is None or not rows.is_whole or len(rows.rows) < MIN_ROWS:
        return Counter()
    return Counter(str(row.get(values.column)) for row in rows.rows)


def _falls_on_one_side(module: Module, test: _Test, values: ColumnValues) -> bool:
    """Do two values that name something, each of several rows, come out of the test alike?"""
    counts = _counts(module, test, values)
    # A value of one row is a slip of the pen.
    deciding = [one for one, count in counts.items() if count > 1 and not NEUTRAL.search(one)]
    return len(deciding) >= MIN_DECIDING


def _another_test_is_met(
    module: Module,
    test: _Test,
    tests: dict[int, list[_Test]],
    known: dict[int, ColumnValues | None],
) -> bool:
    """Does the same function ask the column for a value that rows hold, so that this one is an older spelling?"""
    around = _function_around(module, test.node)
    for key, group in tests.items():
        other, values = group[0], known[key]
        if other.node is test.node or _function_around(module, other.node) is not around:
            continue
        names_a_side = any(not NEUTRAL.search(str(one)) for one in other.wanted)
        if names_a_side and (values is None or _is_met(other, values)):
            return True
    return False


def _function_around(module: Module, node: ast.AST) -> ast.AST | None:
    """The function that a node stands in."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    return next((one for one in module.parents(node) if isinstance(one, kinds)), None)


def _is_written_by_project(module: Module, column: str, test: ast.AST) -> bool:
    """Does the project write the column, so that its values in the file are not those of the test?"""
    for part in module.with_linked:
        for node in part.nodes(ast.Constant):
            if node.value == column and not _only_reads(part, node, test):
                return True
        for stored in part.nodes(ast.Attribute):
            if stored.attr == column and isinstance(stored.ctx, ast.Store):
                return True
    return False


def _only_reads(module: Module, name: ast.Constant, test: ast.AST) -> bool:
    """Does the name of a column read it (`row["winner"]`, `row.get("winner")`), or name what the test makes?"""
    parent = module.scopes.parent.get(name)
    if isinstance(parent, ast.Subscript):
        return isinstance(parent.ctx, ast.Load) or _holds(_assigned_value(module, parent), test)
    if isinstance(parent, ast.Dict):
        pairs = zip(parent.keys, parent.values, strict=True)
        return any(key is name and _holds(value, test) for key, value in pairs)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute):
        return parent.func.attr == "get" and parent.args[:1] == [name]
    return False


def _assigned_value(module: Module, target: ast.AST) -> ast.AST | None:
    """What is stored in a target."""
    parent = module.scopes.parent.get(target)
    return parent.value if isinstance(parent, ast.Assign) else None


def _holds(around: ast.AST | None, node: ast.AST) -> bool:
    """Does one node hold another?"""
    return around is not None and any(one is node for one in ast.walk(around))


def _what_is_decided(module: Module, test: ast.AST) -> str:
    """`pair` or `label`, where a test decides one; else nothing."""
    if _makes_label(module, test):
        return "label"
    is_of_pairs = all(module.mentions(side) for side in SIDES)
    for arms in _arms_of(module, test):
        if any(_names_a_label(one) for one in (*arms.holds, *arms.fails)):
            return "label"
        if is_of_pairs and _arms_pick_sides(arms):
            return "pair"
    return ""


def _makes_label(module: Module, test: ast.AST) -> bool:
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
    """`label = ...`, `row["label"] = ...`"""
    if isinstance(node, ast.Subscript):
        return _is_label_name(node.slice)
    return isinstance(node, ast.Name) and node.id in LABEL_NAMES


def _names_a_label(arm: ast.AST) -> bool:
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
        arms = _arms_at(module, parent, child)
        if arms is not None:
            yield arms
            return
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            target = parent.targets[0]
            if isinstance(target, ast.Name):
                yield from _arms_of_name(module, target)
            return
        child = parent


def _arms_at(module: Module, parent: ast.AST, child: ast.AST) -> _Arms | None:
    """The arms of one expression or statement whose test a node is."""
    if isinstance(parent, ast.IfExp) and parent.test is child:
        return _Arms((parent.body,), (parent.orelse,))
    if isinstance(parent, ast.If) and parent.test is child:
        exchange = _exchange(parent)
        if exchange is not None:
            return exchange
        return _Arms(tuple(parent.body), tuple(parent.orelse) or _statements_behind(module, parent))
    if isinstance(parent, ast.match_case):
        return _arms_of_case(module, parent)
    if isinstance(parent, ast.Call) and parent.args[:1] == [child]:
        return _arms_of_where(parent)
    return _arms_of_table(parent, child)


def _arms_of_case(module: Module, case: ast.match_case) -> _Arms:
    """A case of a `match`, and all others."""
    match = module.scopes.parent.get(case)
    cases = match.cases if isinstance(match, ast.Match) else []
    others = [part for one in cases if one is not case for part in one.body]
    return _Arms(tuple(case.body), tuple(others))


def _arms_of_lookup(module: Module, test: ast.AST) -> Iterator[_Arms]:
    """`{"a": ("one", "two"), ...}.get(cell, ("two", "one"))`: each entry of the table, and the default."""
    if not isinstance(test, ast.Call) or not isinstance(test.func, ast.Attribute):
        return
    if test.func.attr != "get" or len(test.args) != 2:
        return
    for origin in module.flow.origins(test.func.value):
        if isinstance(origin.node, ast.Dict):
            yield from (_Arms((value,), (test.args[1],)) for value in origin.node.values)


def _exchange(branch: ast.If) -> _Arms | None:
    """`if is_second: a, b = b, a` without an `else`: the order that the names have, and the other one."""
    if branch.orelse:
        return None
    for one in branch.body:
        target = one.targets[0] if isinstance(one, ast.Assign) else None
        if isinstance(one, ast.Assign) and isinstance(target, ast.Tuple):
            return _Arms((one.value,), (target,))
    return None


def _arms_of_where(call: ast.Call) -> _Arms | None:
    """`np.where(test, one, other)`, `one.where(test, other)`; None for any other call."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "where":
        return None
    if len(call.args) == 3:
        return _Arms((call.args[1],), (call.args[2],))
    return _Arms((call.func.value,), (call.args[1],)) if len(call.args) == 2 else None


def _arms_of_table(parent: ast.AST, child: ast.AST) -> _Arms | None:
    """`(b, a)[row["winner"] == "a"]`: the place in a pair of things."""
    if not isinstance(parent, ast.Subscript) or parent.slice is not child:
        return None
    pair = parent.value
    if isinstance(pair, ast.Tuple | ast.List) and len(pair.elts) == 2:
        return _Arms((pair.elts[1],), (pair.elts[0],))
    return None


def _statements_behind(module: Module, branch: ast.If) -> tuple[ast.AST, ...]:
    """What follows an `if` without `else` whose body leaves: the other arm."""
    leaves = isinstance(branch.body[-1], ast.Return | ast.Continue | ast.Break | ast.Raise)
    block = module.scopes.parent.get(branch)
    body = getattr(block, "body", None)
    if not leaves or not isinstance(body, list) or branch not in body:
        return ()
    return tuple(body[body.index(branch) + 1 :])


def _arms_of_name(module: Module, target: ast.Name) -> Iterator[_Arms]:
    """The arms of the tests in the same function that are a name."""
    around = _function_around(module, target) or module.tree
    for node in ast.walk(around):
        if isinstance(node, ast.Name) and node.id == target.id and isinstance(node.ctx, ast.Load):
            child: ast.AST = node
            parent = module.scopes.parent.get(child)
            if isinstance(parent, ast.UnaryOp):
                child, parent = parent, module.scopes.parent.get(parent)
            arms = None if parent is None else _arms_at(module, parent, child)
            if arms is not None:
                yield arms


def _arms_pick_sides(arms: _Arms) -> bool:
    """Do two arms name the same things in another order, or answers of different sides?"""
    one, other = _names_in(arms.holds), _names_in(arms.fails)
    if not one or not other or one == other:
        return False
    if len(one) > 1 and sorted(one) == sorted(other):
        return True
    sides = [_side_words(names) for names in (one, other)]
    return all(sides) and sides[0] != sides[1]


def _names_in(arm: tuple[ast.AST, ...]) -> list[str]:
    """The columns, attributes, names and places that an arm reads, in the order of the text."""
    found: list[str] = []
    for statement in arm:
        for node in _in_order(statement):
            if isinstance(node, ast.Name):
                found.append(node.id)
            elif isinstance(node, ast.Attribute):
                found.append(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str | int):
                found.append(str(node.value))
    return found


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what it holds, as the text has it."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def _side_words(names: list[str]) -> list[str]:
    """The sides that names speak of, in their order: `a` of `response_a`."""
    spaced = (re.sub(r"([a-z])([A-Z])", r"\1_\2", name) for name in names)
    last = [WORDS.findall(name)[-1:] for name in spaced]
    return [one[0].lower() for one in last if one and one[0].lower() in SIDE_WORDS]


def _describe(module: Module, found: list[tuple[_Test, ColumnValues, str]]) -> UnmetTest:
    """What to say of the tests of one column in one function."""
    test, values, decided = found[0]
    counts = _counts(module, test, values)
    shown = ", ".join(f"{value!r} ({count:,})" for value, count in counts.most_common(MAX_SHOWN))
    rest = ", ..." if len(counts) > MAX_SHOWN else ""
    literals = dict.fromkeys(literal for one, _, _ in found for literal in one.wanted)
    wanted = " or ".join(repr(one) for one in list(literals)[:MAX_SHOWN])
    always = "always" if test.is_negated else "never"
    effect = (
        "the same side is chosen in every pair, whichever answer is better: the labels are as random"
        if decided == "pair"
        else "every row gets the same label"
    )
    what = (
        f"the comparison is {always} true: no row of {values.source} has {wanted} in `{values.column}`, which holds"
        f" {shown}{rest}; {effect}"
    )
    naming = [value for value, _ in counts.most_common(MAX_SHOWN) if not NEUTRAL.search(value)]
    return UnmetTest(
        test.node,
        what,
        "compare with the values that the column holds"
        f" ({', '.join(map(repr, naming))}), make the rows again, and train again",
    )
