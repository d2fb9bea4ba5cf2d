"""Finds prompts and rows that a script changes in place, so that each use leaves something for the next.

How it works: a list that is made once (at the top of a file, before a loop over rows, as a default of a parameter, or
as a part of a row that a data set keeps) and gets something appended for each row still has it at the next one. So for
each change in place, the object that is changed is followed back through its names: where it was made, and whether a
copy lies between.

The trade-off: a conversation is meant to grow. Loops with `input()`, lists that are shortened or made again, and lists
that no template and no model is given are left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.parsed_source_file import Module

GROWING = frozenset(("append", "insert", "extend"))
SHORTENING = frozenset(("pop", "clear", "remove"))
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
PROMPT_ARGUMENTS = frozenset(("messages", "conversation", "prompt", "prompts", "history", "chat"))
PROMPT_CALLS = frozenset(
    ("apply_chat_template", "chat", "create", "complete", "completion", "generate", "invoke", "ask")
)
"""Last names of calls that are given a prompt"""
ROW_READERS = (
    "datasets.load_dataset",
    "datasets.load_from_disk",
    "datasets.Dataset.*",
    "json.load",
    "json.loads",
    "open",
    "*.read_jsonl",
    "*.load_jsonl",
    "pandas.read_*",
    "csv.DictReader",
    "csv.reader",
)
FRESH_ROWS = ("datasets.load_dataset", "datasets.load_from_disk", "datasets.Dataset.*")
"""What gives a new row at each access"""
MAX_STEPS = 8
"""Names between a change and where the list is made; two are usual"""


class GrowingObject(NamedTuple):
    """An object that each row changes for the next."""

    change: ast.AST
    made: ast.AST
    """Where it is made, or kept"""
    form: str
    """`prompt` or `stored row`"""


def prompts_or_rows_growing_per_row(module: Module) -> Iterator[GrowingObject]:
    """The prompts and stored rows that a script changes for each row, each change once."""
    if re.search(r"\binput\(|gradio|streamlit|chainlit|BaseModel|websocket", module.text):
        return
    for change, changed in in_place_extensions_with_object(module):
        kept = _stored_row_changed_by_getitem(module, changed)
        if kept is not None:
            if not _is_change_conditional(module, change):
                yield GrowingObject(change, kept, "stored row")
            continue
        node = _where_outliving_prompt_is_made(module, change, changed)
        if node is None or _is_shortened(module, change, changed):
            continue
        if not _collects_turns_of_one_dialogue(module, change, changed):
            yield GrowingObject(change, node, "prompt")


def in_place_extensions_with_object(module: Module) -> Iterator[tuple[ast.AST, ast.expr]]:
    """The changes that make an object longer, each with the expression of the object."""
    for call in module.nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in GROWING and call.args:
            yield call, call.func.value
    for node in module.nodes(ast.AugAssign):
        if isinstance(node.op, ast.Add):
            yield node, node.target
    for assignment in module.nodes(ast.Assign):
        for target in assignment.targets:
            if isinstance(target, ast.Subscript) and _is_operation_or_fstring_holding_expression(
                assignment.value, target
            ):
                yield assignment, target


def _is_operation_or_fstring_holding_expression(value: ast.expr, wanted: ast.Subscript) -> bool:
    """Is a value an operation or f-string that holds an expression itself: `row["text"] = SYSTEM + row["text"]`?"""
    if not isinstance(value, ast.BinOp | ast.JoinedStr):
        return False
    text = ast.unparse(wanted)
    return any(
        ast.unparse(one) == text for one in ast.walk(value) if isinstance(one, ast.Subscript)
    )


def _stored_row_changed_by_getitem(module: Module, changed: ast.expr) -> ast.AST | None:
    """The stored row that `__getitem__` changes a part of; None where it is another object, or a copy."""
    function = module.function_around(changed)
    if function is None or function.name != "__getitem__":
        return None
    rows = _whole_that_part_is_indexed_from(module, changed)
    if not isinstance(rows, ast.Attribute) or ast.unparse(rows.value) != "self" or rows is changed:
        return None
    return None if _gives_fresh_rows(module, rows) else rows


def _whole_that_part_is_indexed_from(module: Module, part: ast.expr) -> ast.expr | None:
    """What a part is taken from by indices, through names; None for slices, which are copies, and unknown names."""
    node: ast.expr | None = part
    for _ in range(MAX_STEPS):
        if isinstance(node, ast.Subscript):
            node = None if isinstance(node.slice, ast.Slice) else node.value
        elif isinstance(node, ast.Name):
            node = _single_value(module, node)
        else:
            break
    return node


def _gives_fresh_rows(module: Module, rows: ast.Attribute) -> bool:
    """Is a row of these a new object at each access, or is it not known what they are?"""
    values = [value for value, _ in module.flow.values_assigned_to_attribute(rows)]
    if not values:
        return True
    for value in values:
        for origin in module.flow.origins(value):
            if isinstance(origin.node, ast.ListComp | ast.List):
                continue
            call = module.flow.producing_call(origin.node)
            if call is None or not call.named(*ROW_READERS) or call.named(*FRESH_ROWS, "pandas.*"):
                return True
    return False


def _single_value(module: Module, name: ast.Name) -> ast.expr | None:
    """The one expression that a name is set to, as it is written."""
    bindings = module.scopes.bindings_that_reach(name)
    if len(bindings) != 1 or bindings[0].kind != "value" or bindings[0].path:
        return None
    value = bindings[0].value
    return value if isinstance(value, ast.expr) else None


def _is_change_conditional(module: Module, change: ast.AST) -> bool:
    """Does a branch decide whether a change is made?"""
    for parent in module.parents(change):
        if isinstance(parent, ast.If):
            return True
        if isinstance(parent, FUNCTIONS):
            return False
    return False


def _where_outliving_prompt_is_made(
    module: Module, change: ast.AST, changed: ast.expr
) -> ast.AST | None:
    """Where the list, or the text, of a prompt is made that outlives the row it is changed for; None for any other."""
    if not isinstance(changed, ast.Name | ast.Attribute) or isinstance(change, ast.Assign):
        return None
    found = _literal_of_variable_and_aliases(module, changed)
    if found is None:
        return None
    literal, names = found
    around = _code_run_for_each_row(module, change)
    if around is None or _is_made_again_by_each_run_of_code(module, literal, around):
        return None
    if not _may_be_prompt(literal) or _appends_few_shot_example(module, change, around):
        return None
    return literal if _is_given_as_prompt(around, names) else None


def _literal_of_variable_and_aliases(
    module: Module, variable: ast.Name | ast.Attribute
) -> tuple[ast.expr, frozenset[str]] | None:
    """The list or text that a variable stands for, through other names but no copy, and the names on the way."""
    names = {ast.unparse(variable)}
    node: ast.expr = variable
    for _ in range(MAX_STEPS):
        if isinstance(node, ast.List | ast.Constant | ast.JoinedStr):
            return node, frozenset(names)
        value: ast.expr | None = None
        if isinstance(node, ast.Name):
            value = _value_or_default(module, node)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
            value = _attribute_value_set_by_constructor(module, node)
        if value is None:
            return None
        names.add(ast.unparse(node))
        node = value
    return None


def _attribute_value_set_by_constructor(
    module: Module, attribute: ast.Attribute
) -> ast.expr | None:
    """The one value of an attribute, where the constructor alone sets it."""
    assigned = [
        value for value, path in module.flow.values_assigned_to_attribute(attribute) if not path
    ]
    if len(assigned) != 1:
        return None
    function = module.function_around(assigned[0])
    return assigned[0] if function is not None and function.name == "__init__" else None


def _value_or_default(module: Module, name: ast.Name) -> ast.expr | None:
    """The one value of a name; of a parameter that no call gives, its default."""
    reaching = module.scopes.bindings_that_reach(name)
    bindings = [one for one in reaching if one.kind in ("value", "parameter")]
    if len(bindings) != 1:
        return None
    (binding,) = bindings
    if isinstance(binding.node, ast.arg):
        default = _default_of(module, binding.node)
        nodes = module.flow.arguments_given(binding.node)
        return default if all(one is default for one in nodes) else None
    return _single_value(module, name) if isinstance(binding.value, ast.expr) else None


def _default_of(module: Module, parameter: ast.arg) -> ast.expr | None:
    """The default of a parameter."""
    function = next((one for one in module.parents(parameter) if isinstance(one, FUNCTIONS)), None)
    if function is None:
        return None
    given = [*function.args.posonlyargs, *function.args.args]
    pairs = zip(reversed(given), reversed(function.args.defaults), strict=False)
    named = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return next((value for one, value in (*pairs, *named) if one is parameter), None)


def _code_run_for_each_row(module: Module, change: ast.AST) -> ast.AST | None:
    """The code that runs for each row: the function around a change that a loop calls, or the loop itself."""
    for parent in module.parents(change):
        if isinstance(parent, ast.For | ast.AsyncFor):
            return parent if _iterates_over_data_rows(module, parent.iter) else None
        if isinstance(parent, ast.While):
            return None
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            is_repeated = any(
                _is_called_in_loop_over_rows(module, call)
                for call in module.flow.calls_of_function_or_class(parent)
            )
            return parent if is_repeated or _is_function_given_to_map(module, parent) else None
    return None


def _iterates_over_data_rows(module: Module, iterable: ast.expr) -> bool:
    """Does a loop go over rows of a file or of a data set?"""
    inner = iterable
    while isinstance(inner, ast.Call) and inner.args:
        call = module.flow.call(inner)
        if call.named(*ROW_READERS):
            return True
        inner = inner.args[-1 if call.named("zip") else 0]
    for origin in module.flow.origins(inner):
        made = module.flow.producing_call(origin.node)
        if made is not None and made.named(*ROW_READERS):
            return True
        if isinstance(origin.node, ast.ListComp) and any(
            module.flow.call(one).named(*ROW_READERS)
            for one in ast.walk(origin.node)
            if isinstance(one, ast.Call)
        ):
            return True
    return False


def _is_called_in_loop_over_rows(module: Module, call: ast.AST) -> bool:
    """Is a call made for each element of a loop or comprehension over rows?"""
    for parent in module.parents(call):
        if isinstance(parent, ast.For | ast.AsyncFor) and _iterates_over_data_rows(
            module, parent.iter
        ):
            return True
        if isinstance(parent, COMPREHENSIONS) and any(
            _iterates_over_data_rows(module, one.iter) for one in parent.generators
        ):
            return True
    return False


def _is_function_given_to_map(
    module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef
) -> bool:
    """Is a function given to `map` of rows?"""
    return any(
        isinstance(one, ast.Name) and one.id == function.name
        for call in module.methods("map")
        for one in call.args
    )


def _is_made_again_by_each_run_of_code(module: Module, node: ast.AST, around: ast.AST) -> bool:
    """Is a list made again each time that the code runs? A default is made once."""
    if isinstance(around, FUNCTIONS) and any(
        node in ast.walk(default)
        for default in (*around.args.defaults, *around.args.kw_defaults)
        if default is not None
    ):
        return False
    return any(parent is around for parent in module.parents(node))


def _may_be_prompt(literal: ast.expr) -> bool:
    """Is a value a text, a list of messages, or an empty list?"""
    if isinstance(literal, ast.JoinedStr):
        return True
    if isinstance(literal, ast.Constant):
        return isinstance(literal.value, str) and bool(literal.value)
    return isinstance(literal, ast.List) and all(
        isinstance(one, ast.Dict)
        and any(isinstance(key, ast.Constant) and key.value == "role" for key in one.keys)
        for one in literal.elts
    )


def _appends_few_shot_example(module: Module, change: ast.AST, around: ast.AST) -> bool:
    """Is what is appended a shot, which belongs to the prompt of all rows?"""
    return isinstance(around, FUNCTIONS) and any(
        isinstance(parent, LOOPS) and any(one is around for one in module.parents(parent))
        for parent in module.parents(change)
    )


def _is_given_as_prompt(around: ast.AST, names: frozenset[str]) -> bool:
    """Does the repeated code give the list to a template or a model?"""
    for call in ast.walk(around):
        if not isinstance(call, ast.Call):
            continue
        last = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        keywords = [one.value for one in call.keywords if one.arg in PROMPT_ARGUMENTS]
        arguments = [*keywords, *(call.args if last in PROMPT_CALLS else [])]
        inside = [
            item for one in arguments for item in (one.elts if isinstance(one, ast.List) else [one])
        ]
        if any(ast.unparse(one) in names for one in inside):
            return True
    return False


def _is_shortened(module: Module, change: ast.AST, changed: ast.expr) -> bool:
    """Does the file shorten the list again, or set it to another one?"""
    written = ast.unparse(changed)
    if _has_parts_deleted(module, written) or _has_items_taken_out(module, written):
        return True
    around = _code_run_for_each_row(module, change)
    return around is not None and _does_repeated_code_reset_list(module, written, around)


def _collects_turns_of_one_dialogue(module: Module, change: ast.AST, changed: ast.expr) -> bool:
    """Does a loop go over the turns of one dialogue: is each of them a message, and the reply to it kept too?"""
    around = _code_run_for_each_row(module, change)
    if not isinstance(around, ast.For) or not isinstance(around.target, ast.Name):
        return False
    contents = [
        value
        for call in ast.walk(around)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == f"{ast.unparse(changed)}.append"
        for value in _contents_by_role(call.args[0])
    ]
    is_turn = any(
        role == "user" and ast.unparse(content) == around.target.id for role, content in contents
    )
    return is_turn and any(role == "assistant" for role, _ in contents)


def _contents_by_role(message: ast.expr) -> Iterator[tuple[object, ast.expr]]:
    """The role and the content of a message that is written as a dictionary; nothing for any other."""
    if not isinstance(message, ast.Dict):
        return
    fields = {
        key.value: value
        for key, value in zip(message.keys, message.values, strict=True)
        if isinstance(key, ast.Constant)
    }
    role, content = fields.get("role"), fields.get("content")
    if isinstance(role, ast.Constant) and content is not None:
        yield role.value, content


def _has_parts_deleted(module: Module, written: str) -> bool:
    """Does the file delete a list that is written so, or a part of it?"""
    return any(
        re.match(rf"{re.escape(written)}\b", ast.unparse(target))
        for node in module.nodes(ast.Delete)
        for target in node.targets
    )


def _has_items_taken_out(module: Module, written: str) -> bool:
    """Does the file call a method that shortens a list that is written so?"""
    return any(
        function.attr in SHORTENING and ast.unparse(function.value) == written
        for call in module.nodes(ast.Call)
        if isinstance(function := call.func, ast.Attribute)
    )


def _does_repeated_code_reset_list(module: Module, written: str, around: ast.AST) -> bool:
    """Does the repeated code set a list that is written so, or a part of it, to what is no name alone?"""
    for node in module.nodes(ast.Assign):
        is_bound = any(ast.unparse(target).startswith(written) for target in node.targets)
        if (
            is_bound
            and not isinstance(node.value, ast.Name)
            and _is_made_again_by_each_run_of_code(module, node, around)
        ):
            return True
    return False
