"""Finds prompts that end in a space, where the texts that a script beside trains on join the answer
to that place.

How it works: texts are read with `{}` for their values. A prompt that ends in `Answer: ` is
compared with texts in which a value follows `Answer:`. The trade-off: where a script beside also
has a text that ends in the same way, it may encode prompts apart, and then the lone space was
trained.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.prompt_forms import (
    asks_model_and_trains_none,
    scripts_beside,
    text_with_placeholders,
)
from truetune.source.parsed_source_file import Module

ENDS_IN_SPACE = re.compile(r"(?:^|\n)(?P<mark>[^\n{}]{1,60}[:\]>=])(?P<space>[ \t]+)$")


class PromptEndingInSpace(NamedTuple):
    """A prompt that ends in a space, where training has the answer's first word joined to it."""

    prompt: ast.AST
    mark: str
    trained: str
    """The line in the training's text, with `{}` for the answer"""
    training: Module
    text: ast.AST


def prompts_ending_in_untrained_space(module: Module) -> Iterator[PromptEndingInSpace]:
    """The prompts of a file that asks, whose last space the training has not."""
    prompts = (
        list(_texts_ending_in_mark_and_space(module)) if asks_model_and_trains_none(module) else []
    )
    if not prompts:
        return
    others = list(scripts_beside(module))
    for prompt, mark, ending in prompts:
        prompts_ending_in_space = [
            one for other in others for one in _texts_with_line_starting_with_mark(other, mark)
        ]
        if any(one.trained.endswith(ending) for one in prompts_ending_in_space):
            continue
        joined = next((one for one in prompts_ending_in_space if "{}" in one.trained), None)
        if joined is not None:
            yield joined._replace(prompt=prompt)


def _texts_ending_in_mark_and_space(module: Module) -> Iterator[tuple[ast.AST, str, str]]:
    """The texts of a file that end in a mark and a space, each with the mark alone and with both."""
    for node, text in _whole_texts(module):
        match = ENDS_IN_SPACE.search(text)
        if match is not None and not _text_is_appended_to(module, node):
            yield node, match["mark"], match["mark"] + match["space"]


def _texts_with_line_starting_with_mark(module: Module, mark: str) -> Iterator[PromptEndingInSpace]:
    """The texts of a file with a mark at the beginning of a line and a value, or nothing, after it."""
    line = re.compile(rf"(?:^|\n){re.escape(mark)}[ \t\n]*(?:\{{\}}|$)")
    for node, text in _whole_texts(module):
        match = line.search(text)
        if match is None:
            continue
        trained = match[0].lstrip("\n")
        # What is put after a text that ends in the mark follows it: `prompt + row["answer"]`.
        if not trained.endswith("}") and _text_is_appended_to(module, node):
            trained += "{}"
        yield PromptEndingInSpace(node, mark, trained, module, node)


def _whole_texts(module: Module) -> Iterator[tuple[ast.AST, str]]:
    """The texts of a file, those that are parts of others left out."""
    for node in module.nodes(ast.Constant, ast.JoinedStr, ast.BinOp):
        parent = module.scopes.parent.get(node)
        if isinstance(parent, ast.JoinedStr | ast.FormattedValue | ast.Expr | ast.BinOp):
            continue
        text = text_with_placeholders(node)
        if text:
            yield node, text


def _text_is_appended_to(module: Module, node: ast.AST) -> bool:
    """Is a text bound to a name after which something is put: `prompt + answer`,
    `f"{prompt}{answer}"`?
    """
    parent = module.scopes.parent.get(node)
    if not isinstance(parent, ast.Assign):
        return False
    names = {target.id for target in parent.targets if isinstance(target, ast.Name)}
    for name in names:
        for read in module.name_reads.get(name, ()):
            around = module.scopes.parent.get(read)
            if isinstance(around, ast.BinOp) and around.left is read:
                return True
            if isinstance(around, ast.FormattedValue):
                return True
    return False
