"""Finds answers of a model that a script puts back into the same chat as turns of the user.

How it works: a message with the role `user` is added to a list that is also sent to a model, and
its content is the answer to that same list: the content of a reply, or decoded ids. The trade-off:
a script that names the role `assistant` anywhere is left alone, for two models may talk there, and
each is the other's user.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.source.evidence.prompt_forms import trains_a_model
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

OF_AN_ANSWER = re.compile(
    r"\.message\.content$|\[['\"]message['\"]\]\[['\"]content['\"]\]$|\.(?:batch_)?decode\(|generated_text|"
    r"\.outputs\[0\]\.text"
)
"""How an answer is read from a reply, or from generated ids"""
SENDING_METHODS = ("apply_chat_template", "chat", "create_chat_completion")
TIDYING_METHODS = ("strip", "lstrip", "rstrip")
MAX_STEPS = 6
"""Names between an answer and the chat that was sent. Chosen: text, ids, what is generated, what is encoded, chat"""


def answers_given_back_as_users(module: Module) -> Iterator[ast.expr]:
    """The messages by which a script gives a model its own answers as turns of the user."""
    if _names_assistant_role(module) or trains_a_model(module):
        return
    sent = set(_message_lists_sent(module))
    for call in module.methods("append"):
        chat = ast.unparse(call.receiver) if call.receiver is not None else ""
        if chat in sent and call.args and _is_user_turn_with_answer(module, call.args[0], chat):
            yield call.args[0]


def _names_assistant_role(module: Module) -> bool:
    """Does a file name the role of who answers, such as the assistant?"""
    return any(node.value == "assistant" for node in module.nodes(ast.Constant))


def _message_lists_sent(module: Module) -> Iterator[str]:
    """The lists of messages that a model or a server is given, as the code spells them."""
    for call in module.all_calls:
        given = call.keywords.get("messages") or _chat_argument(call)
        if given is not None:
            yield ast.unparse(given)
    for node in module.nodes(ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "messages":
                yield ast.unparse(value)


def _chat_argument(call: Call) -> ast.expr | None:
    """The chat that a template or an engine is given as its first argument."""
    return call.args[0] if call.method in SENDING_METHODS and call.args else None


def _is_user_turn_with_answer(module: Module, message: ast.expr, chat: str) -> bool:
    """Is it a message of the user whose content is a model's answer to this chat?"""
    entries = module.flow.dict_entries_and_if_complete(message)[0]
    role, content = entries.get("role"), entries.get("content")
    if role is None or content is None or module.flow.value(role) != "user":
        return False
    origins = [origin.node for origin in module.flow.origins(_without_text_methods(content))]
    return bool(origins) and all(
        _is_model_answer(node) and _comes_from_call_given_chat(module, node, chat, MAX_STEPS, set())
        for node in origins
    )


def _is_model_answer(node: ast.AST) -> bool:
    """Is it what a model answered?"""
    return isinstance(node, ast.expr) and bool(
        OF_AN_ANSWER.search(ast.unparse(_without_text_methods(node)))
    )


def _comes_from_call_given_chat(
    module: Module, node: ast.AST, chat: str, steps: int, seen: set[ast.AST]
) -> bool:
    """Does a value come from a call that was given this chat, by the names in it?

    `seen` holds what was opened already: names that lead to one another would be followed along
    each way between them.
    """
    if node in seen:
        return False
    seen.add(node)
    parts = list(ast.walk(node))
    if any(isinstance(part, ast.expr) and ast.unparse(part) == chat for part in parts):
        return True
    if steps == 0:
        return False
    made = (
        origin.node
        for part in parts
        if isinstance(part, ast.Name)
        for origin in module.flow.origins(part)
        if origin.node not in parts
    )
    return any(
        isinstance(one, ast.expr)
        and _comes_from_call_given_chat(module, one, chat, steps - 1, seen)
        for one in made
    )


def _without_text_methods(node: ast.expr) -> ast.expr:
    """The text without the methods that tidy it: `text` of `text.strip()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in TIDYING_METHODS:
            break
        node = node.func.value
    return node
