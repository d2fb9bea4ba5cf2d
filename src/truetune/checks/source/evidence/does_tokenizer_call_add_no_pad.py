"""Says whether a call of a tokenizer adds no pad, because it gets one row, or one row several
times.
"""

from __future__ import annotations

import ast
import re

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.data_flow import Origin
from truetune.source.parsed_source_file import Module

TEXT_METHODS = frozenset(
    (
        "format",
        "strip",
        "lstrip",
        "rstrip",
        "replace",
        "lower",
        "upper",
        "join",
        "read",
        "read_text",
    )
)
"""Methods whose result is one string"""
TAKEN_FROM_TEXT = (
    "format",
    "strip",
    "lstrip",
    "rstrip",
    "lower",
    "upper",
    "split",
    "splitlines",
    "startswith",
    "endswith",
)
"""Methods that only a string has: what they are called on is one"""
TEXT_FUNCTIONS = frozenset(("str", "input", "repr"))
DEPTH = 4
"""Lists that are made of each other"""
ONE_STRING = re.compile(r"str|str \| None|Optional\[str\]")
STRINGS = re.compile(r"(list|List|tuple|Tuple|Sequence|Iterable|Iterator|set|Set)\[str\b.*\]")
"""Annotations of what holds one string an element"""


def surely_adds_no_pad(module: Module, call: Call) -> bool:
    """Is it certain that no pad is added: one row is encoded, or equal ones, and to no fixed
    length?

    Args:
        module: The file.
        call: A call of a tokenizer, or of `apply_chat_template`.
    """
    if module.flow.value(call.keywords.get("padding")) == "max_length":
        return False
    if call.method == "apply_chat_template":
        conversation = call.argument(0, "conversation")
        return conversation is not None and all(
            _is_single_conversation(module, origin) or _holds_equal_rows(module, origin)
            for origin in module.flow.origins(conversation)
        )
    text = call.argument(0, "text")
    if text is None or _has_string_only_method_called_on_it(module, text):
        return text is not None
    return all(
        _is_one_row(module, origin) or _holds_equal_rows(module, origin)
        for origin in module.flow.origins(text)
    )


def _holds_equal_rows(module: Module, origin: Origin, depth: int = 0) -> bool:
    """Is a value a list of one element several times: `[x] * n`, `[x for _ in range(n)]`, or each
    of such a list rendered?
    """
    node = origin.node
    is_whole = not origin.element and not origin.path
    if not is_whole or depth == DEPTH or _list_gets_other_elements(module, node):
        return False
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _is_list_of_one(node.left) or _is_list_of_one(node.right)
    if not isinstance(node, ast.ListComp) or not _gives_same_value_each_time(module, node.elt):
        return False
    return _comprehension_repeats_element(module, node, depth)


def _comprehension_repeats_element(module: Module, comprehension: ast.ListComp, depth: int) -> bool:
    """Does a comprehension give one element several times: without its loop's name, or from a list
    of equal ones?
    """
    loop, *others = comprehension.generators
    if others:
        return False
    if _names_in(loop.target).isdisjoint(_names_in(comprehension.elt)):
        return True
    return all(
        _holds_equal_rows(module, source, depth + 1) for source in module.flow.origins(loop.iter)
    )


def _names_in(node: ast.expr) -> set[str]:
    """The names of an expression."""
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}


def _is_list_of_one(node: ast.expr) -> bool:
    """Is it `[x]`? `[*rows]` may hold many."""
    if not isinstance(node, ast.List) or len(node.elts) != 1:
        return False
    return not isinstance(node.elts[0], ast.Starred)


def _list_gets_other_elements(module: Module, holder: ast.AST) -> bool:
    """Does a list get other elements under the name that it is given: `rows[i] = x`,
    `rows.append(x)`, `rows += x`?
    """
    statement = module.scopes.parent.get(holder)
    names = (
        {t.id for t in statement.targets if isinstance(t, ast.Name)}
        if isinstance(statement, ast.Assign)
        else set()
    )
    written: list[ast.expr | None] = [
        call.receiver for call in module.methods("append", "extend", "insert")
    ]
    written += [
        node.value for node in module.nodes(ast.Subscript) if isinstance(node.ctx, ast.Store)
    ]
    written += [node.target for node in module.nodes(ast.AugAssign)]
    return any(isinstance(name, ast.Name) and name.id in names for name in written)


def _gives_same_value_each_time(module: Module, node: ast.expr) -> bool:
    """Does it give the same each time: no call in it but of a template and of methods of text?"""
    calls = (module.flow.call(part) for part in ast.walk(node) if isinstance(part, ast.Call))
    return all(
        call.method == "apply_chat_template"
        or (
            isinstance(call.node.func, ast.Attribute)
            and call.node.func.attr in TEXT_METHODS - {"read", "read_text"}
        )
        or call.named("str", "len", "dict", "list")
        for call in calls
    )


def _is_one_row(module: Module, origin: Origin) -> bool:
    """Is a value one row: a string, or a list of one string?"""
    node = origin.node
    if isinstance(node, (ast.List, ast.Tuple)) and not origin.element and not origin.path:
        return len(node.elts) == 1 and not isinstance(node.elts[0], ast.Starred)
    return _is_one_string(module, origin)


def _is_one_string(module: Module, origin: Origin) -> bool:
    """Is a value one string, whatever it says?"""
    node = origin.node
    if origin.element:
        return not origin.path and all(
            _each_element_is_string(module, whole) for whole in module.flow.origins(node)
        )
    if isinstance(node, ast.arg):
        return (
            node.annotation is not None
            and ONE_STRING.fullmatch(ast.unparse(node.annotation)) is not None
        )
    return not origin.path and isinstance(node, ast.expr) and _expression_is_string(module, node)


def _has_string_only_method_called_on_it(module: Module, text: ast.expr) -> bool:
    """Is a method that only a string has called on the same name, with the same value, in the same
    function?
    """
    return isinstance(text, ast.Name) and any(
        isinstance(call.receiver, ast.Name)
        and call.receiver.id == text.id
        and module.scopes.of[call.receiver] is module.scopes.of[text]
        and module.flow.origins(call.receiver) == module.flow.origins(text)
        for call in module.methods(*TAKEN_FROM_TEXT)
    )


def _each_element_is_string(module: Module, origin: Origin) -> bool:
    """Is each element of it one string?"""
    node = origin.node
    if origin.element or origin.path:
        return False
    if isinstance(node, ast.arg):
        return (
            node.annotation is not None
            and STRINGS.fullmatch(ast.unparse(node.annotation)) is not None
        )
    return isinstance(node, (ast.List, ast.Tuple, ast.Set)) and all(
        _expression_is_string(module, part) for part in node.elts
    )


def _expression_is_string(module: Module, node: ast.expr) -> bool:
    """Is an expression certainly one string?"""
    if isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    ):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
        return _expression_is_string(module, node.left) or (
            isinstance(node.op, ast.Add) and _expression_is_string(module, node.right)
        )
    if isinstance(node, ast.Call):
        return _returns_string(module, module.flow.call(node))
    if isinstance(node, (ast.Name, ast.Attribute)):
        origins = module.flow.origins(node)
        return all(origin.node is not node and _is_one_string(module, origin) for origin in origins)
    return False


def _returns_string(module: Module, call: Call) -> bool:
    """Does a call certainly return one string?"""
    if call.method == "apply_chat_template":
        conversation = call.argument(0, "conversation")
        return module.flow.value(call.keywords.get("tokenize")) is False and (
            conversation is not None
            and all(
                _is_single_conversation(module, origin)
                for origin in module.flow.origins(conversation)
            )
        )
    of_text = isinstance(call.node.func, ast.Attribute) and call.node.func.attr in TEXT_METHODS
    return of_text or call.named(*TEXT_FUNCTIONS)


def _is_single_conversation(module: Module, origin: Origin) -> bool:
    """Is a value one list of messages, and not a list of such lists?"""
    node = origin.node
    return (
        isinstance(node, ast.List)
        and not origin.element
        and not origin.path
        and bool(node.elts)
        and all(_is_message(module, part) for part in node.elts)
    )


def _is_message(module: Module, node: ast.expr) -> bool:
    """Is an expression one message, written as a dictionary?"""
    return all(
        isinstance(origin.node, ast.Dict) and not origin.element and not origin.path
        for origin in module.flow.origins(node)
    )
