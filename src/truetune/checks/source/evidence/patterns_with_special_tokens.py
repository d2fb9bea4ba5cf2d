"""Finds patterns of TRL's reward functions that match only where the text of a special token is.

How it works: a pattern is parsed by `re` itself, and its tree is walked for literals that each match has to hold. An
optional token, or one of several alternatives, is not required.

The trade-off: special tokens are told by the names of the usual stop and turn tokens. A pattern that is used to clean a
text (`sub`, `split`), or that reads a prompt, is left alone.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from truetune.checks.source.evidence.answer_reading_patterns import (
    MAX_PATTERN_CHARS,
    SEARCH_METHODS,
)
from truetune.checks.source.evidence.rewards_without_difference import reward_functions_of_file
from truetune.source.parsed_source_file import Module

SPECIAL_TOKEN = re.compile(
    r"<\|(?:im_end|im_start|endoftext|end_of_text|eot_id|eom_id|end|return|eos|endofturn|end_of_turn)\|>"
    r"|<end_of_turn>|<start_of_turn>|</s>|<eos>|<｜end▁of▁sentence｜>|\[eos\]|<turn\|>"
)
"""The stop and turn tokens of Qwen, Llama, Gemma, Phi, Mistral, DeepSeek and gpt-oss; tags such as </think> are text"""
KEEPS_SPECIAL_TOKENS = re.compile(r"skip_special_tokens\s*=\s*False")
PENALTY = re.compile(r"-=|(?:= |\(|return )-|(?:append\(|return |= )(?:0|0\.0|False|None)\b")
"""What a branch does that takes a reward away"""
LESS = re.compile(r"penal|leak|forbid|clean", re.I)
NOTHING = ("0", "0.0", "False", "None")
MAX_HELPERS = 10
"""Functions of the file that a reward function may call, and that are read with it"""


class SpecialTokenPattern(NamedTuple):
    """A search whose pattern needs a special token."""

    function: ast.FunctionDef
    search: ast.AST
    token: str


def patterns_with_special_tokens(module: Module) -> Iterator[SpecialTokenPattern]:
    """The searches of reward functions that find nothing in completions without special tokens."""
    if KEEPS_SPECIAL_TOKENS.search(module.text):
        return
    seen: set[ast.AST] = set()
    for function in reward_functions_of_file(module):
        for node in _nodes_of_function_and_helpers(module, function):
            token = _token_needed(module, node)
            if token is not None and node not in seen and not _is_penalty(module, node):
                seen.add(node)
                yield SpecialTokenPattern(function, node, token)


def _is_penalty(module: Module, node: ast.AST) -> bool:
    """Does a completion get less where the token is found? That none is found there is no fault."""
    inner = node
    for around in (node, *module.parents(node)):
        if isinstance(around, ast.IfExp) and (inner is around.test or around is node):
            return "-" in ast.unparse(around.body) or ast.unparse(around.body) in NOTHING
        if isinstance(around, ast.UnaryOp):
            return not _guards_against_missing_form(module, around)
        if isinstance(around, ast.BinOp) and "-" in ast.unparse(around):
            return "-" in ast.unparse(around).replace(ast.unparse(node), "")
        if isinstance(around, ast.If) and inner is around.test:
            return PENALTY.search("\n".join(map(ast.unparse, around.body))) is not None
        if isinstance(around, ast.FunctionDef):
            return LESS.search(around.name) is not None
        inner = around
    return False


def _guards_against_missing_form(module: Module, negated: ast.UnaryOp) -> bool:
    """Is it `if not FORM.match(text): return 0`, by which a match alone can be paid?"""
    around = next(module.parents(negated))
    if not isinstance(around, ast.If) or negated is not around.test:
        return False
    return PENALTY.search("\n".join(map(ast.unparse, around.body))) is not None


def _nodes_of_function_and_helpers(module: Module, function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function, and of the functions of the file that it calls."""
    functions: list[ast.AST] = [function]
    for one in functions:
        for node in ast.walk(one):
            yield node
            called = (
                module.flow.function_that_expression_names(node.func)
                if isinstance(node, ast.Call)
                else None
            )
            if called is not None and called not in functions and len(functions) < MAX_HELPERS:
                functions.append(called)


def _token_needed(module: Module, node: ast.AST) -> str | None:
    """The special token without which a test of a completion fails; None where there is none."""
    if isinstance(node, ast.IfExp):
        return _token_needed_by_choice(node)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if node.func.attr not in SEARCH_METHODS or not node.args:
        return None
    pattern, text = _pattern_and_text(module, node)
    if pattern is None or len(pattern) > MAX_PATTERN_CHARS:
        return None
    if text is not None and "prompt" in ast.unparse(text).lower():
        return None
    return special_token_needed_by_pattern(pattern)


def _pattern_and_text(module: Module, search: ast.Call) -> tuple[str | None, ast.expr | None]:
    """The pattern of a search, and the text that it is searched in: `re.search(p, t)`, `FORM.search(t)`."""
    assert isinstance(search.func, ast.Attribute), "the caller looked"
    name = module.flow.name(search.func) or ""
    if name.startswith(("re.", "regex.")) and name.count(".") == 1:
        text = search.args[1] if len(search.args) > 1 else None
        return _known_text(module, search.args[0]), text
    compiled = module.flow.producing_call(search.func.value)
    if (
        compiled is None
        or not compiled.args
        or not set(compiled.names) & {"re.compile", "regex.compile"}
    ):
        return None, None
    return _known_text(module, compiled.args[0]), search.args[0]


def _known_text(module: Module, node: ast.expr) -> str | None:
    """The text that an expression is; None where it is not known."""
    value = module.flow.value(node)
    return value if isinstance(value, str) else None


def _token_needed_by_choice(choice: ast.IfExp) -> str | None:
    """The token of `1.0 if text.endswith(token) else 0.0`; None for a choice that is not between two numbers."""
    values = (choice.body, choice.orelse)
    if not all(isinstance(one, ast.Constant | ast.UnaryOp) for one in values):
        return None
    needed = _text_needed_by_test(choice.test)
    if not isinstance(needed, ast.Constant) or not isinstance(needed.value, str):
        return None
    token = SPECIAL_TOKEN.search(needed.value)
    return token.group() if token is not None else None


def _text_needed_by_test(test: ast.expr) -> ast.expr | None:
    """What a completion must end with (`text.endswith(token)`) or hold (`token in text`); None for other tests."""
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute):
        return test.args[0] if test.func.attr == "endswith" and test.args else None
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In):
        is_prompt = "prompt" in ast.unparse(test.comparators[0]).lower()
        return None if is_prompt else test.left
    return None


def special_token_needed_by_pattern(pattern: str) -> str | None:
    """The special token that each match of a pattern holds; None where there is none, or that is not known."""
    if SPECIAL_TOKEN.search(re.sub(r"\\(.)", r"\1", pattern)) is None:
        return None
    try:
        # The parser of `re` is not public: where it is missing, nothing is said.
        tree = importlib.import_module("re._parser").parse(pattern)
        return _token_of_sequence(tree, "")
    except (ImportError, AttributeError, TypeError, ValueError, RecursionError, re.error):
        return None


def _token_of_sequence(items: Iterable[tuple[Any, Any]], before: str) -> str | None:
    """The special token that a sequence of items needs; literals right before it may be a part of the token."""
    literals = before
    for operation, argument in items:
        kind = str(operation)
        if kind == "LITERAL":
            literals += chr(argument)
            continue
        if (match := SPECIAL_TOKEN.search(literals)) is not None:
            return match.group()
        inner = _token_of_item(kind, argument, literals)
        if inner is not None:
            return inner
        if kind != "AT":
            literals = ""
    match = SPECIAL_TOKEN.search(literals)
    return match.group() if match is not None else None


def _token_of_item(kind: str, argument: Any, before: str) -> str | None:
    """The special token that one item needs; alternatives need one if each of them does."""
    if kind == "SUBPATTERN":
        return _token_of_sequence(argument[-1], before)
    if kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _token_of_sequence(argument[-1], before) if argument[0] >= 1 else None
    if kind != "BRANCH":
        return None
    found = [_token_of_sequence(branch, before) for branch in argument[1]]
    return found[0] if all(found) else None
