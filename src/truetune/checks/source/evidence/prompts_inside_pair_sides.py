"""Finds preference pairs whose two sides hold the prompt once more, beside a column for it.

How it works: a pair is a mapping with prompt, chosen and rejected. Its sides are followed to what
they are made of: a chat that a template renders, or texts that are joined. A side holds the prompt
where a turn of the user in it says what the prompt says, where it renders the whole column of which
the prompt is the beginning, or where it begins with it.

The trade-off: behind a cut, a split or a function that is not known, nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.values_of_run import (
    Item,
    Mapping,
    Operation,
    Result,
    Sequence,
    Slice,
    Value,
)

SIDES = ("chosen", "rejected")
RENDERS = "apply_chat_template"
ASKS = ("user", "human")
KEEPS_TEXT = ("strip", "rstrip", "lstrip")
MAX_DEPTH = 6
"""Lists and sums inside one another that a chat or a text is made of. Chosen by hand: beyond it
nothing is said of a pair
"""


class PromptInsidePair(NamedTuple):
    """A pair whose sides hold its prompt."""

    node: ast.AST
    is_rendered: bool
    """By a chat template, and not by joining texts"""


def prompts_inside_pairs(module: Module) -> Iterator[PromptInsidePair]:
    """The pairs of a file whose sides both hold the prompt, each place once."""
    written = {id(node) for node in ast.walk(module.tree)}
    for trace in traces_of_scripts_that_reach_file(module):
        for value in trace.values:
            if not isinstance(value, Mapping) or id(value.node) not in written:
                continue
            prompt_inside_pair = _prompt_inside_pair(value)
            if prompt_inside_pair is not None:
                written.discard(id(value.node))
                yield prompt_inside_pair


def _prompt_inside_pair(pair: Mapping) -> PromptInsidePair | None:
    """The finding of a pair, if both sides hold the prompt that it has as well; None otherwise."""
    prompt = pair.entries.get("prompt")
    sides = [pair.entries.get(side) for side in SIDES]
    if prompt is None or pair.node is None or any(side is None for side in sides):
        return None
    held = [_way_side_holds_prompt(prompt, side) for side in sides if side is not None]
    if not all(held):
        return None
    return PromptInsidePair(pair.node, "rendered" in held)


def _way_side_holds_prompt(prompt: Value, side: Value) -> str:
    """How a side holds the prompt: `rendered`, `joined`, or empty where it is not known to."""
    side = _text_before_strip(side)
    chat = _chat_before_rendering(side)
    asked = _columns_whose_whole_text_is_in(prompt)
    if chat is None:
        return "joined" if asked and _is_prompt_with_more(prompt, side) else ""
    if isinstance(chat, Item) and constant_of(chat.key) in _columns_beginning_with_prompt(prompt):
        return "rendered"
    questions = {
        column
        for turn in _turns_of_chat(chat)
        if constant_of(turn.entries.get("role")) in ASKS
        for column in _columns_whose_whole_text_is_in(turn.entries.get("content"))
    }
    return "rendered" if asked and asked <= questions else ""


def _text_before_strip(value: Value) -> Value:
    """The text before `strip` took blanks away at its ends; the value itself without one."""
    while isinstance(value, Result) and value.call.method in KEEPS_TEXT and not value.call.args:
        value = value.call.receiver or Value()
    return value


def _chat_before_rendering(value: Value) -> Value | None:
    """The conversation that a template renders into a text."""
    if not isinstance(value, Result) or value.call.method != RENDERS:
        return None
    return value.call.argument(0, "conversation")


def _turns_of_chat(chat: Value, depth: int = 0) -> Iterator[Mapping]:
    """The turns of a conversation that is written in the file, also of lists that are added."""
    if isinstance(chat, Mapping):
        yield chat
    parts = (
        chat.items
        if isinstance(chat, Sequence)
        else chat.operands
        if isinstance(chat, Operation)
        else ()
    )
    for part in parts if depth < MAX_DEPTH else ():
        yield from _turns_of_chat(part, depth + 1)


def _columns_whose_whole_text_is_in(value: Value | None, depth: int = 0) -> frozenset[str]:
    """The columns of the row whose whole texts stand in a value."""
    if value is None or depth > MAX_DEPTH:
        return frozenset()
    value = _text_before_strip(value)
    if isinstance(value, Item):
        key = constant_of(value.key)
        return frozenset((key,)) if isinstance(key, str) else frozenset()
    chat = _chat_before_rendering(value)
    if chat is not None:
        contents = [turn.entries.get("content") for turn in _turns_of_chat(chat)]
        return frozenset().union(
            *(_columns_whose_whole_text_is_in(content, depth + 1) for content in contents)
        )
    if isinstance(value, Operation):
        return frozenset().union(
            *(_columns_whose_whole_text_is_in(part, depth + 1) for part in value.operands)
        )
    return frozenset()


def _columns_beginning_with_prompt(prompt: Value) -> frozenset[str]:
    """The columns whose beginning is the prompt: `render(row["chosen"][:-1])`."""
    chat = _chat_before_rendering(_text_before_strip(prompt))
    cut = chat if chat is not None else prompt
    if not isinstance(cut, Item) or not isinstance(cut.base, Item):
        return frozenset()
    is_beginning = isinstance(cut.key, Slice) and cut.key.start is None
    key = constant_of(cut.base.key)
    # Both sides of a pair hold one question: the beginning of either is that of both.
    return frozenset((key, *SIDES)) if is_beginning and isinstance(key, str) else frozenset()


def _is_prompt_with_more(prompt: Value, side: Value) -> bool:
    """Is a text joined of the prompt, and of something behind it?"""
    while isinstance(side, Operation) and side.operands:
        first = side.operands[0]
        if first is prompt:
            return True
        if isinstance(first, Item) and isinstance(prompt, Item):
            return first.base is prompt.base and constant_of(first.key) == constant_of(prompt.key)
        side = first
    return False
