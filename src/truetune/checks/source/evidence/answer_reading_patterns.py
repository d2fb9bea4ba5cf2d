"""Finds the patterns by which a script reads answers out of texts, and the columns that it reads
with them.

A reader is a function of the file that searches its argument and gives nothing where no pattern is
found. It is followed from its calls to the columns of rows (`row["resp"]`, `row.get("gold")`). A
function that falls back on something else (the last number, the whole text) reads every text, and
is none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.row_field_reads import field_name_read
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

SEARCH_METHODS = ("search", "findall", "match", "fullmatch", "finditer")
NESTED_REPETITION = re.compile(r"[+*}]\??[^()|]{0,20}\)[+*{]")
"""A repetition in a repetition, which may take for ever on a text that does not fit: such a pattern is not run"""
# Chosen, not measured: patterns of answers have some 50 characters, and long ones take long on texts that do not fit.
MAX_PATTERN_CHARS = 500
Function = ast.FunctionDef | ast.AsyncFunctionDef


class AnswersRunOrParsed(NamedTuple):
    """A call that runs an answer as code, or reads it as JSON, as it stands."""

    function: str
    column: str
    """Of the rows that the answer stands in"""
    node: ast.AST


RUNNING_CALLS = (
    "exec",
    "eval",
    "compile",
    "ast.parse",
    "ast.literal_eval",
    "json.loads",
    "subprocess.run",
)
ANSWER_COLUMN = re.compile(
    r"answer|output|completion|response|prediction|pred$|generat|code|solution|reply", re.I
)
"""Columns that hold what a model wrote"""


def answers_run_or_parsed(module: Module) -> Iterator[AnswersRunOrParsed]:
    """Calls that run an answer as code, or parse it as JSON, of a column that a model wrote.

    The column is followed through parameters of the file's functions.
    """
    for call in module.calls(*RUNNING_CALLS):
        given = call.args[0] if call.args else None
        for column in _columns_of_expression(module, given) if given is not None else ():
            if ANSWER_COLUMN.search(column):
                yield AnswersRunOrParsed(ast.unparse(call.node.func), column, call.node)
                break


def _columns_of_expression(module: Module, expression: ast.expr, depth: int = 3) -> Iterator[str]:
    """The columns that an expression is read from: `row["code"]` itself, or what calls give for a
    parameter.
    """
    column = _column_read(expression)
    if column is not None:
        yield column
    if depth == 0 or not isinstance(expression, ast.Name):
        return
    for function in module.nodes(ast.FunctionDef):
        names = [one.arg for one in function.args.args]
        if expression.id in names and expression in ast.walk(function):
            for passed in arguments_passed_at_position(
                module, function, names.index(expression.id)
            ):
                yield from _columns_of_expression(module, passed, depth - 1)


def columns_of_text(module: Module, text: ast.expr) -> Iterator[str]:
    """The columns that a text is: read from a row, given to a function, or written into a row by
    the same name.
    """
    yield from _columns_of_expression(module, text)
    for origin in module.flow.origins(text):
        is_read = isinstance(origin.node, ast.Subscript | ast.Call)
        column = _column_read(origin.node) if is_read else None
        if column is not None:
            yield column
    if isinstance(text, ast.Name):
        for node in module.nodes(ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                is_text = isinstance(value, ast.Name) and value.id == text.id
                if is_text and isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value


def arguments_passed_at_position(
    module: Module, function: ast.FunctionDef, position: int
) -> Iterator[ast.expr]:
    """What calls give a function at a position; also what a process that is started on it is given,
    by `args=(...)`.
    """
    name = function.args.args[position].arg
    for call in module.all_calls:
        arguments = call.keywords.get("args")
        target = call.keywords.get("target")
        if module.flow.function_that_expression_names(call.node.func) is function:
            argument = call.argument(position, name)
            if argument is not None:
                yield argument
        elif isinstance(arguments, ast.Tuple) and target is not None:
            if module.flow.function_that_expression_names(target) is function and position < len(
                arguments.elts
            ):
                yield arguments.elts[position]


class AnswerReader(NamedTuple):
    """A function that reads answers."""

    patterns: tuple[re.Pattern[str], ...]
    columns: tuple[str, ...]
    """Columns of rows that it is given, in order"""
    node: ast.AST
    """The first search in it"""

    def finds_something_in(self, text: str) -> bool:
        """Does any of the reader's patterns find something in a text?"""
        return any(pattern.search(text) for pattern in self.patterns)


def answer_readers_of_several_columns(module: Module) -> Iterator[AnswerReader]:
    """The functions of a file that read answers out of two columns of rows or more."""
    if not module.mentions("re"):
        return
    for function, calls in _searches_by_function(module).items():
        patterns = [compiled_pattern_of_call(module, call) for call in calls]
        columns = tuple(dict.fromkeys(_columns_passed_as_first_argument(module, function)))
        known = tuple(pattern for pattern in patterns if pattern is not None)
        # One pattern that is not known may be the one that finds what the others miss.
        if len(columns) < 2 or len(known) < len(patterns):
            continue
        if not _returns_more_than_matches(function, calls):
            yield AnswerReader(known, columns, calls[0].node)


def _searches_by_function(module: Module) -> dict[Function, list[Call]]:
    """The searches by a pattern in each function that has parameters."""
    names = tuple(f"re.{name}" for name in SEARCH_METHODS)
    searches: dict[Function, list[Call]] = {}
    for call in module.all_calls:
        if not call.named(*names) and call.method not in SEARCH_METHODS:
            continue
        around = next((p for p in module.parents(call.node) if isinstance(p, Function)), None)
        if around is not None and around.args.args:
            searches.setdefault(around, []).append(call)
    return searches


def compiled_pattern_of_call(module: Module, call: Call) -> re.Pattern[str] | None:
    """The pattern that a call searches for; None where it is not plain, or may take for ever."""
    made = call
    if call.method in SEARCH_METHODS:
        compiled = module.flow.producing_call(call.receiver)
        if compiled is None or not compiled.named("re.compile"):
            return None
        made = compiled
    text = module.flow.value(made.argument(0, "pattern"))
    if not isinstance(text, str) or len(text) > MAX_PATTERN_CHARS or NESTED_REPETITION.search(text):
        return None
    try:
        return re.compile(text, _regex_flags_of_call(made))
    except re.error:
        return None


def _regex_flags_of_call(made: Call) -> re.RegexFlag:
    """The flags that are named in a call."""
    named = {
        node.attr
        for part in (*made.args[1:], *made.keywords.values())
        for node in ast.walk(part)
        if isinstance(node, ast.Attribute)
    }
    flags = re.RegexFlag(0)
    for name in named & set(re.RegexFlag.__members__):
        flags |= re.RegexFlag[name]
    return flags


def _columns_passed_as_first_argument(module: Module, function: Function) -> Iterator[str]:
    """The columns of rows that calls give a function as its first argument."""
    for node in module.flow.calls_of_function_or_class(function):
        for argument in node.args[:1]:
            column = _column_read(argument)
            if column is not None:
                yield column


def _column_read(node: ast.AST) -> str | None:
    """The column of a row that is read: `row["resp"]`, `row.get("resp", "")`, also in `str(...)` or
    with `.strip()`; None otherwise.
    """
    fields = map(field_name_read, ast.walk(node))
    return next((field for field in fields if field is not None), None)


def _returns_more_than_matches(function: Function, calls: list[Call]) -> bool:
    """Does a function return anything but what its searches find, or a constant?"""
    nodes = {call.node for call in calls}
    names = _names_holding_matches(function, nodes)
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    return any(
        part is not None and not _is_constant_or_match(part, nodes, names)
        for value in returned
        for part in ([value.body, value.orelse] if isinstance(value, ast.IfExp) else [value])
    )


def _names_holding_matches(function: Function, nodes: set[ast.Call]) -> set[str]:
    """Names that hold what a search gives, directly or by another name."""
    names: set[str] = set()
    # Each pass follows one more name; scripts have one or two, such as `match` and `text = match.group(1)`.
    for _ in range(3):
        for node in ast.walk(function):
            for value, target in _bindings_of(node):
                if _holds_match(value, nodes, names):
                    names |= {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}
    return names


def _bindings_of(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The values that a statement or a walrus binds, each with its target."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield node.value, target
    elif isinstance(node, ast.NamedExpr):
        yield node.value, node.target
    elif isinstance(node, ast.For):
        yield node.iter, node.target


def _holds_match(node: ast.expr, nodes: set[ast.Call], names: set[str]) -> bool:
    """Does an expression hold a search, or a name that holds what one gave?"""
    return any(
        part in nodes or (isinstance(part, ast.Name) and part.id in names)
        for part in ast.walk(node)
    )


def _is_constant_or_match(node: ast.expr, nodes: set[ast.Call], names: set[str]) -> bool:
    """Is it a constant, or made of what a search gave?"""
    return isinstance(node, ast.Constant) or _holds_match(node, nodes, names)
