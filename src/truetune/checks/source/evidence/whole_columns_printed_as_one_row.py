"""Finds functions of `map` that get whole columns, and print one into a text as if it were one
row's value.

How it works: `map(function, batched=True)` and `set_transform` give a function the lists of many
rows. In the body of that function each place counts where a column goes into a text or a message as
it is: an f-string, `format`, `%`, `str`, the content of a message. A list that is joined, counted,
indexed or looped over is no such place.

The trade-off: only a function of the checked files is read, and only names that are bound in it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.call_with_resolved_names_and_arguments import Call, last_name_of_called
from truetune.source.parsed_source_file import Module

ALWAYS_BATCHED = ("set_transform", "with_transform")
"""Methods of `datasets` whose function gets lists in any case"""
SHOWN_BY = frozenset(
    ("print", "info", "debug", "warning", "warn", "error", "exception", "critical", "write", "log")
)
"""What a text is only shown by: printing and logging; it reaches no row"""
ARGUMENTS_OF_FORMAT = ("format", "format_map")
MAX_STEPS = 6
"""Assignments between a column and its use. Chosen, not measured: a formatter has one or two"""

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class BatchedFunction(NamedTuple):
    """A function that a data set calls with lists."""

    call: Call
    """The call of `map`"""
    function: AnyFunction
    name: str
    columns: frozenset[str]
    """Parameters that are a column themselves, by `input_columns`"""
    batch: str | None
    """The parameter that holds all columns; None with `input_columns`"""


class PrintedColumn(NamedTuple):
    """A place where a whole column becomes one text."""

    mapped: BatchedFunction
    node: ast.AST
    column: str
    """As the script writes it: `batch["question"]`"""
    is_message: bool
    """Is it the content of a message, and no part of a text?"""


def batched_functions(module: Module) -> Iterator[BatchedFunction]:
    """The functions of the checked files that a data set calls with the lists of many rows."""
    for call in module.methods("map", *ALWAYS_BATCHED):
        is_batched = (
            call.method in ALWAYS_BATCHED or module.flow.value(call.keywords.get("batched")) is True
        )
        transform_argument = call.argument(0, "function" if call.method == "map" else "transform")
        if transform_argument is None or not is_batched:
            continue
        function = module.flow.function_that_expression_names(
            _function_inside_partial(module, transform_argument)
        )
        if function is not None:
            yield _batched_function(module, call, function)


def _function_inside_partial(module: Module, expression: ast.expr) -> ast.expr:
    """The function inside `functools.partial(function, tokenizer=tokenizer)`."""
    call = module.flow.producing_call(expression)
    if call is not None and call.named("functools.partial") and len(call.args) == 1:
        return call.args[0]
    return expression


def _batched_function(module: Module, call: Call, function: AnyFunction) -> BatchedFunction:
    """The function, with what its parameters hold."""
    name = "the lambda" if isinstance(function, ast.Lambda) else function.name
    names = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]
    chosen = module.flow.value(call.keywords.get("input_columns"))
    if isinstance(chosen, str):
        chosen = [chosen]
    if isinstance(chosen, list | tuple):
        return BatchedFunction(call, function, name, frozenset(names[: len(chosen)]), None)
    is_by_column = "input_columns" in call.keywords
    return BatchedFunction(
        call, function, name, frozenset(), names[0] if names and not is_by_column else None
    )


def printed_columns(module: Module) -> Iterator[PrintedColumn]:
    """The places of a file where a function that gets lists makes one text of a whole column."""
    for mapped in batched_functions(module):
        yield from _printed_columns_of(module, mapped)


def _printed_columns_of(module: Module, mapped: BatchedFunction) -> Iterator[PrintedColumn]:
    """The places of one function."""
    for node in ast.walk(mapped.function):
        for part, is_message in _expressions_put_into_text_or_message(node):
            column = _whole_column_of(module, mapped, part)
            if column is not None and not _text_is_only_shown(module, mapped.function, node):
                yield PrintedColumn(mapped, node, column, is_message)


def _expressions_put_into_text_or_message(node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """The expressions that a node puts into a text as they are; and whether it is a message's
    content.
    """
    if isinstance(node, ast.FormattedValue):
        yield node.value, False
    elif isinstance(node, ast.Call):
        yield from ((part, False) for part in _parts_filled_by_call(node))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        yield from ((part, False) for part in _parts_filled_by_percent(node))
    elif isinstance(node, ast.Dict):
        content = _content_of_message(node)
        if content is not None:
            yield content, True


def _parts_filled_by_call(node: ast.Call) -> Iterator[ast.expr]:
    """The expressions that `template.format(...)` and `str(...)` put into a text."""
    if isinstance(node.func, ast.Name) and node.func.id == "str" and len(node.args) == 1:
        yield node.args[0]
    if isinstance(node.func, ast.Attribute) and node.func.attr in ARGUMENTS_OF_FORMAT:
        # Without a keyword the value of `**batch` is the batch itself.
        yield from (*node.args, *(keyword.value for keyword in node.keywords))


def _parts_filled_by_percent(node: ast.BinOp) -> Iterator[ast.expr]:
    """The expressions that `"%s" % (...)` puts into a text."""
    is_text = isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
    if not is_text:
        return
    if isinstance(node.right, ast.Tuple):
        yield from node.right.elts
    elif isinstance(node.right, ast.Dict):
        yield from node.right.values
    else:
        yield node.right


def _content_of_message(node: ast.Dict) -> ast.expr | None:
    """The content of a message that is written out: `{"role": ..., "content": ...}`; None
    otherwise.
    """
    entries = {
        key.value: value
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }
    return entries.get("content") if "role" in entries else None


def _whole_column_of(
    module: Module, mapped: BatchedFunction, node: ast.expr, depth: int = 0
) -> str | None:
    """The column that an expression holds as a whole, as the script writes it; None where it does
    not.
    """
    if depth > MAX_STEPS:
        return None
    if isinstance(node, ast.Name):
        return _whole_column_of_name(module, mapped, node, depth)
    key: ast.expr | None = None
    base: ast.expr | None = None
    if isinstance(node, ast.Subscript):
        base, key = node.value, node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        is_lookup = node.func.attr == "get" and bool(node.args)
        base, key = (node.func.value, node.args[0]) if is_lookup else (None, None)
    if base is None or key is None or not _is_batch_parameter(module, mapped, base):
        return None
    return ast.unparse(node) if isinstance(module.flow.value(key), str) else None


def _whole_column_of_name(
    module: Module, mapped: BatchedFunction, node: ast.Name, depth: int
) -> str | None:
    """The column that a name of the function stands for, on every way."""
    bound = module.scopes.bindings_that_reach(node)
    if not bound:
        return None
    found: str | None = None
    for binding in bound:
        if binding.kind == "parameter" and _is_own_parameter(mapped, binding.node):
            column = node.id if node.id in (*mapped.columns, mapped.batch) else None
        elif binding.kind == "value" and binding.value is not None and not binding.path:
            column = _whole_column_of(module, mapped, binding.value, depth + 1)
        else:
            column = None
        if column is None:
            return None
        found = column
    return found


def _is_own_parameter(mapped: BatchedFunction, node: ast.AST) -> bool:
    """Is it a parameter of the function itself, and not of one inside it?"""
    arguments = mapped.function.args
    return any(node is parameter for parameter in (*arguments.posonlyargs, *arguments.args))


def _is_batch_parameter(module: Module, mapped: BatchedFunction, node: ast.expr) -> bool:
    """Is it the parameter that holds all columns, unchanged?"""
    if not isinstance(node, ast.Name) or node.id != mapped.batch:
        return False
    bound = module.scopes.bindings_that_reach(node)
    return bool(bound) and all(_is_own_parameter(mapped, binding.node) for binding in bound)


def _text_is_only_shown(module: Module, function: AnyFunction, node: ast.AST) -> bool:
    """Does the text go to a terminal, a log or an error, and to no row?"""
    for parent in module.parents(node):
        if parent is function:
            return False
        if isinstance(parent, ast.Raise | ast.Assert):
            return True
        if isinstance(parent, ast.Call) and last_name_of_called(parent) in SHOWN_BY:
            return True
    return False
