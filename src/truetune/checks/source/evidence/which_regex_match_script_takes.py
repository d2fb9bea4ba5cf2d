"""Finds which match of a pattern a script takes of a text, and of which column of its rows the text
is.

How it works: a search is followed to the place where its match is taken (`search(...).group(1)`,
`findall(...)[-1]`), and its text back to a column, through parameters of functions and the methods
of texts (`strip`, `split("...")[-1]`), which are done on the texts of the rows. Searches of the
same function that stand before it come first: it reads only what they leave.

The trade-off: a text that anything else changes on the way is not read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.answer_reading_patterns import (
    SEARCH_METHODS,
    arguments_passed_at_position,
    compiled_pattern_of_call,
)
from truetune.checks.source.evidence.row_field_reads import field_name_read
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

MAX_DEPTH = 4
"""Functions and names between a search and the column. Chosen, not measured"""
FIRST, LAST = "first", "last"
PLAIN_METHODS: dict[str, Callable[[str], str]] = {
    "strip": str.strip,
    "lstrip": str.lstrip,
    "rstrip": str.rstrip,
    "lower": str.lower,
    "upper": str.upper,
    "casefold": str.casefold,
}
PARTS = {"split": re.compile(r"\S+"), "splitlines": re.compile(r"[^\n]+")}
"""Methods that divide a text, and a pattern whose matches are the parts"""
PART_NAMES = {r"\S+": "word", r"[^\n]+": "line"}
"""What a match of these patterns is"""
Change = Callable[[str], str]


class TakenMatch(NamedTuple):
    """One search and what it takes."""

    node: ast.AST
    column: str
    pattern: re.Pattern[str]
    which: str
    """`first` or `last`"""
    group: int
    changes: tuple[Change, ...]
    """What is done to the text before it is searched, in order"""
    earlier: tuple[re.Pattern[str], ...]
    """Patterns that are tried before it"""
    starts_at_begin: bool
    """`match` finds nothing but at the beginning"""

    def searched_text(self, text: str) -> str | None:
        """The text as it is searched; None where another pattern finds something before."""
        for change in self.changes:
            text = change(text)
        return None if any(pattern.search(text) for pattern in self.earlier) else text


class _ColumnWithChanges(NamedTuple):
    """A column, and what is done to its text."""

    column: str
    changes: tuple[Change, ...] = ()


def taken_matches(module: Module) -> Iterator[TakenMatch]:
    """The searches of a file whose taken match and columns are known; one for each column."""
    yield from _split_parts_as_matches(module)
    if not module.mentions("re"):
        return
    for call in regex_searches(module):
        pattern = compiled_pattern_of_call(module, call)
        taken = _match_and_group_taken(module, call)
        is_method = call.method in SEARCH_METHODS
        text = call.argument(0 if is_method else 1, "string")
        if pattern is None or taken is None or text is None:
            continue
        which, group = taken
        if group > pattern.groups:
            continue
        earlier = _patterns_tried_before(module, call)
        if earlier is None:
            continue
        begins = _search_function_name(call) in ("match", "fullmatch")
        for way in _columns_with_changes(module, text, MAX_DEPTH):
            yield TakenMatch(
                call.node, way.column, pattern, which, group, way.changes, earlier, begins
            )


def _split_parts_as_matches(module: Module) -> Iterator[TakenMatch]:
    """The words and lines that `text.split()[0]` and `text.splitlines()[-1]` take, as matches of a
    pattern.
    """
    for node in module.nodes(ast.Subscript):
        call = node.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.args:
            continue
        pattern = PARTS.get(call.func.attr)
        which = {0: FIRST, -1: LAST}.get(_constant_index(node) or 0)
        if pattern is None or which is None or _constant_index(node) is None:
            continue
        for way in _columns_with_changes(module, call.func.value, MAX_DEPTH):
            yield TakenMatch(node, way.column, pattern, which, 0, way.changes, (), False)


def regex_searches(module: Module) -> Iterator[Call]:
    """The searches of texts by a pattern."""
    names = tuple(f"re.{name}" for name in SEARCH_METHODS)
    for call in module.all_calls:
        if call.named(*names) or call.method in SEARCH_METHODS:
            yield call


def _search_function_name(call: Call) -> str:
    """The name of the function that searches: `search`, `findall`, ..."""
    return call.method or call.names[0].rpartition(".")[2]


def _match_and_group_taken(module: Module, call: Call) -> tuple[str, int] | None:
    """(which match, which group) a script takes of what a search gives; None where that is not
    plain.
    """
    name = _search_function_name(call)
    uses = list(_uses_of_value(module, call.node))
    if name == "finditer":
        return None
    if name == "findall":
        return _match_and_group_of_findall(compiled_pattern_of_call(module, call), uses)
    groups = [group for use in uses if (group := _group_taken(module, use)) is not None]
    return (FIRST, groups[0]) if len(set(groups)) == 1 else None


def _match_and_group_of_findall(
    pattern: re.Pattern[str] | None, uses: list[ast.AST]
) -> tuple[str, int] | None:
    """Which match, and which group, a script takes of the list that `findall` gives: its first item
    or its last one; None where that is not plain.
    """
    places = {_constant_index(use) for use in uses if isinstance(use, ast.Subscript)}
    place = places.pop() if len(places) == 1 else None
    if pattern is None or pattern.groups > 1 or place is None:
        return None
    which = {0: FIRST, -1: LAST}.get(place)
    return None if which is None else (which, pattern.groups)


def _uses_of_value(module: Module, node: ast.expr) -> Iterator[ast.AST]:
    """What a script does with the value of an expression: what stands around it, or around the name
    it is bound to.
    """
    parent = module.scopes.parent.get(node)
    if isinstance(parent, ast.NamedExpr | ast.Assign):
        target = parent.target if isinstance(parent, ast.NamedExpr) else parent.targets[0]
        if isinstance(target, ast.Name):
            yield from _uses_of_name(module, target)
        return
    if parent is not None:
        yield parent


def _uses_of_name(module: Module, target: ast.Name) -> Iterator[ast.AST]:
    """What stands around the uses of a name, in its own scope."""
    home = module.scopes.scope_that_binds_name(target)
    for name in module.nodes(ast.Name):
        is_read = isinstance(name.ctx, ast.Load) and name.id == target.id
        if is_read and module.scopes.scope_that_binds_name(name) is home:
            parent = module.scopes.parent.get(name)
            if parent is not None:
                yield parent


def _constant_index(use: ast.AST) -> int | None:
    """The number in `found[-1]`; None for another index."""
    index = use.slice if isinstance(use, ast.Subscript) else None
    is_from_end = isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub)
    number = index.operand if isinstance(index, ast.UnaryOp) and is_from_end else index
    value = number.value if isinstance(number, ast.Constant) else None
    if type(value) is not int:
        return None
    return -value if is_from_end else value


def _group_taken(module: Module, use: ast.AST) -> int | None:
    """The group that `match.group(1)` or `match[1]` takes; None for another use."""
    if isinstance(use, ast.Subscript):
        return _constant_index(use)
    call = module.scopes.parent.get(use) if isinstance(use, ast.Attribute) else None
    if not isinstance(use, ast.Attribute) or use.attr != "group" or not isinstance(call, ast.Call):
        return None
    if not call.args:
        return 0
    group = call.args[0].value if isinstance(call.args[0], ast.Constant) else None
    return group if isinstance(group, int) and not isinstance(group, bool) else None


def _patterns_tried_before(module: Module, call: Call) -> tuple[re.Pattern[str], ...] | None:
    """The patterns that the same function tries before; None where one is not known, or works on
    another text.
    """
    function = module.function_around(call.node)
    if function is None:
        return ()
    text = ast.unparse(_searched_text_argument(call) or call.node)
    patterns: list[re.Pattern[str]] = []
    for other in regex_searches(module):
        if other.node is call.node or module.function_around(other.node) is not function:
            continue
        if (other.node.lineno, other.node.col_offset) > (call.node.lineno, call.node.col_offset):
            continue
        pattern, searched = compiled_pattern_of_call(module, other), _searched_text_argument(other)
        if pattern is None or searched is None or ast.unparse(searched) != text:
            return None
        patterns.append(pattern)
    return tuple(patterns)


def _searched_text_argument(call: Call) -> ast.expr | None:
    """The text that is searched."""
    return call.argument(0 if call.method in SEARCH_METHODS else 1, "string")


def _columns_with_changes(
    module: Module, text: ast.expr, depth: int
) -> Iterator[_ColumnWithChanges]:
    """The columns that a text is, each with what is done to it."""
    column = field_name_read(text)
    if column is not None:
        yield _ColumnWithChanges(column)
        return
    if depth == 0:
        return
    if isinstance(text, ast.Name):
        for inner in _assigned_or_passed_values(module, text):
            yield from _columns_with_changes(module, inner, depth - 1)
        looped = _column_looped_over(module, text)
        if looped is not None:
            yield _ColumnWithChanges(looped)
        return
    before, change = _text_before_and_change(text)
    if before is not None and change is not None:
        for way in _columns_with_changes(module, before, depth):
            yield _ColumnWithChanges(way.column, (*way.changes, change))


def _assigned_or_passed_values(module: Module, name: ast.Name) -> Iterator[ast.expr]:
    """What a name stands for: the one value that it is given, or what the calls of its function
    pass.
    """
    function = module.function_around(name)
    bound = _places_binding_name(function if function is not None else module.tree, name.id)
    parameters = [] if function is None else [one.arg for one in function.args.args]
    if name.id in parameters:
        if not bound and isinstance(function, ast.FunctionDef):
            yield from arguments_passed_at_position(module, function, parameters.index(name.id))
        return
    assigned = module.scopes.parent.get(bound[0]) if len(bound) == 1 else None
    if isinstance(assigned, ast.Assign) and len(assigned.targets) == 1:
        if isinstance(assigned.targets[0], ast.Name):
            yield assigned.value


def _column_looped_over(module: Module, name: ast.Name) -> str | None:
    """The column of a table that a name goes over: `for p, g in zip(df.prediction, df["answer"])`."""
    for around in module.parents(name):
        loops = getattr(around, "generators", [around] if isinstance(around, ast.For) else [])
        for loop in loops:
            iterated = _iterable_from_which_loop_binds_name(loop, name.id)
            if iterated is not None:
                if isinstance(iterated, ast.Attribute):
                    return iterated.attr
                return field_name_read(iterated)
    return None


def _iterable_from_which_loop_binds_name(
    loop: ast.For | ast.comprehension, name: str
) -> ast.expr | None:
    """What a loop takes a name from, directly or as one of the parts of `zip`; None where it binds
    no such name.
    """
    if isinstance(loop.target, ast.Name):
        return loop.iter if loop.target.id == name else None
    zipped = loop.iter
    if not isinstance(zipped, ast.Call) or ast.unparse(zipped.func) != "zip":
        return None
    names = loop.target.elts if isinstance(loop.target, ast.Tuple) else []
    pairs = zip(names, zipped.args, strict=False)
    return next(
        (given for one, given in pairs if isinstance(one, ast.Name) and one.id == name), None
    )


def _places_binding_name(around: ast.AST, name: str) -> list[ast.Name]:
    """The places where a name is bound in a function or a file."""
    names = (node for node in ast.walk(around) if isinstance(node, ast.Name) and node.id == name)
    return [node for node in names if not isinstance(node.ctx, ast.Load)]


def _text_before_and_change(text: ast.expr) -> tuple[ast.expr | None, Change | None]:
    """The text before a change, and the change, of `text.strip()`, `str(text)`,
    `text.split("...")[-1]`; (None, None) otherwise.
    """
    if isinstance(text, ast.Subscript) and isinstance(text.value, ast.Call):
        return _text_before_and_split_change(text, text.value)
    if not isinstance(text, ast.Call):
        return None, None
    if isinstance(text.func, ast.Attribute):
        return text.func.value, _change_by_method(text.func.attr, text.args)
    is_text = ast.unparse(text.func) == "str" and len(text.args) == 1
    return (text.args[0], str) if is_text else (None, None)


def _text_before_and_split_change(
    part: ast.Subscript, call: ast.Call
) -> tuple[ast.expr | None, Change | None]:
    """The text before, and the change, of the first or last part that `split` gives; (None, None)
    otherwise.
    """
    called, place = call.func, _constant_index(part)
    if not isinstance(called, ast.Attribute) or called.attr != "split" or place not in (0, -1):
        return None, None
    return called.value, _change_by_split(call.args, place)


def _change_by_method(method: str, args: list[ast.expr]) -> Change | None:
    """What a method of texts does, where its arguments are written out."""
    if method in PLAIN_METHODS and not args:
        return PLAIN_METHODS[method]
    given = [one.value for one in args if isinstance(one, ast.Constant)]
    texts = [one for one in given if isinstance(one, str)]
    if method == "replace" and len(args) == len(texts) == 2:
        old, new = texts
        return lambda text: text.replace(old, new)
    return None


def _change_by_split(args: list[ast.expr], place: int) -> Change | None:
    """What `split(mark)[0]` or `split(mark)[-1]` leaves of a text."""
    mark = args[0].value if len(args) == 1 and isinstance(args[0], ast.Constant) else None
    if not isinstance(mark, str) or not mark:
        return None
    return lambda text: text.split(mark)[place]
