"""Finds where generated texts are parsed as a format, and instructions that ask for one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import backward_slice
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

PARSES = (
    "json.loads",
    "ast.literal_eval",
    "orjson.loads",
    "yaml.safe_load",
    "json5.loads",
    "json_repair.*",
)
PARSING_METHODS = ("model_validate_json", "parse_raw", "validate_json")
ASKS = re.compile(r"\b(JSON|XML|YAML|SQL|tool calls?|function calls?)\b|<tool_call>")
"""In an instruction; lower case is more often a file's name"""
MIN_WORDS = 4
"""A text of fewer words is a key, a name or a label, and no instruction"""


def signs_of_structured_answers(module: Module) -> Iterator[ast.AST]:
    """The places where generated answers are parsed as a format, or an instruction asks for one."""
    parsers: list[Call] = [*module.calls(*PARSES), *module.methods(*PARSING_METHODS)]
    for call in parsers:
        if call.args and _parses_generated_text(module, call.args[0]):
            yield call.node
    for node in module.nodes(ast.Constant):
        if not isinstance(node.value, str) or len(node.value.split()) < MIN_WORDS:
            continue
        if not ASKS.search(node.value) or _is_string_as_statement(module, node):
            continue
        if _is_prompt_text(module, node):
            yield node


def _parses_generated_text(module: Module, parsed: ast.expr) -> bool:
    """Does the text that is parsed come from a generation?"""
    for part in backward_slice(module, parsed):
        if isinstance(part, ast.Call):
            if module.flow.call(part).method in ("decode", "batch_decode", "generate"):
                return True
        elif isinstance(part, ast.Attribute) and part.attr == "outputs":
            return True
    return False


def _is_string_as_statement(module: Module, node: ast.Constant) -> bool:
    """Is a text a statement of its own?"""
    return isinstance(module.scopes.parent.get(node), ast.Expr)


def _is_prompt_text(module: Module, node: ast.Constant) -> bool:
    """Is a text assigned, or part of a message or prompt, and not one that is printed, raised or
    shown as help?
    """
    for around in module.parents(node):
        if isinstance(around, ast.Raise):
            return False
        if isinstance(around, ast.Call):
            name = ast.unparse(around.func).rpartition(".")[2]
            if name in (
                "print",
                "add_argument",
                "ArgumentParser",
                "info",
                "warning",
                "error",
                "debug",
            ):
                return False
        if isinstance(around, ast.stmt):
            return isinstance(around, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr)
    return False
