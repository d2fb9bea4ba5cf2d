"""Finds answers that a chat template renders as a conversation of their own, after a prompt.

How it works: `apply_chat_template` is given the answer's turn alone, and what it gives is a side of
a pair, a completion, or what is added to a rendered prompt. Templates that open every chat with
BOS or with a default system prompt write that opening once more, in front of the answer.

The trade-off: whether a template opens chats is known of published models alone. Of a rendering that
is cut, or of a template that the script brings, nothing is said.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    likely_model_names,
    normalized_model_name,
)
from truetune.data.answering_roles import is_answering_role
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Choice,
    Item,
    Mapping,
    Operation,
    Result,
    Sequence,
    Slice,
    Value,
)

RENDERS = "apply_chat_template"
ANSWER_KEY = re.compile(r"^(text_)?(chosen|rejected|completion)(_text|_ids)?$", re.I)
"""Columns that trainers append to a prompt"""
END_METHODS = frozenset(("strip", "lstrip", "rstrip", "removesuffix"))
"""Methods of a text that leave its beginning"""
OWN_TEMPLATE = re.compile(
    r"\.chat_template\s*=[^=]|get_chat_template|setup_chat_format|clone_chat_template"
)
"""A script that gives its tokenizer another template"""
SYSTEM = "its default system prompt"
BOS = "BOS"
OPENINGS = (
    ("qwen2(-5)?-", SYSTEM),
    ("smollm2", SYSTEM),
    ("gpt-oss", SYSTEM),
    ("(meta-)?llama-?3-[123].*instruct", f"BOS and {SYSTEM}"),
    ("(meta-)?llama-?3.*instruct", BOS),
    ("deepseek-(r1|v3)", BOS),
    ("gemma-4.*it", BOS),
)
"""The beginning of a model's name -> what its template writes before a lone answer. Measured: the
published templates rendered one message of the assistant; of Qwen2 the template was read. Those of
Mistral and of Gemma 1 to 3 refuse it, and those of Qwen3 and Phi write nothing
"""
MAX_DEPTH = 8
"""Sums and methods between a rendering and its use"""


class AnswerRenderedAlone(NamedTuple):
    """An answer with the opening of a chat in front."""

    node: ast.AST
    """The rendering"""
    model: str
    opening: str
    """What the template writes in front"""


def answers_rendered_alone(module: Module) -> Iterator[AnswerRenderedAlone]:
    """The answers of a file that are rendered as chats of their own, each place once."""
    if OWN_TEMPLATE.search(module.text):
        return
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for call in _renderings_after_prompts(trace):
            if call.home.path != module.path or call.node in seen:
                continue
            seen.add(call.node)
            known = _model_and_template_opening(module, call)
            if known is not None:
                yield AnswerRenderedAlone(call.node, *known)


def lone_answer_renderings(module: Module) -> Iterator[ast.AST]:
    """The renderings of an answer's turn alone, whatever becomes of them."""
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.methods(RENDERS):
            if call.home.path == module.path and _renders_answer_alone(call):
                yield call.node


def _renderings_after_prompts(trace: Trace) -> Iterator[CallEvent]:
    """The renderings of lone answers that are used after a prompt."""
    for value in trace.values:
        for text in _texts_after_prompt(value):
            yield from _lone_answer_renderings_at_start(text)
    for store in trace.stores:
        key = store.key if isinstance(store.key, str) else constant_of(store.key)
        if _is_answer_key(key):
            yield from _lone_answer_renderings_at_start(store.value)


def _texts_after_prompt(value: Value) -> list[Value]:
    """The texts in a value that come after a prompt: answers of a row, or what is added to one."""
    if isinstance(value, Mapping):
        return [entry for key, entry in value.entries.items() if _is_answer_key(key)]
    if isinstance(value, Operation) and value.operator == "+" and len(value.operands) > 1:
        return [value.operands[1]] if _ends_with_rendering(value.operands[0]) else []
    return []


def _is_answer_key(key: object) -> bool:
    """Is it the name of a column that trainers append to a prompt?"""
    return isinstance(key, str) and bool(ANSWER_KEY.match(key))


def _lone_answer_renderings_at_start(value: Value, depth: int = 0) -> Iterator[CallEvent]:
    """The rendering of a lone answer that a text begins with."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, Choice | Sequence):
        # A column of a batch is a list of texts.
        for one in value.options if isinstance(value, Choice) else value.items:
            yield from _lone_answer_renderings_at_start(one, depth + 1)
    elif isinstance(value, Operation) and value.operator == "+" and value.operands:
        yield from _lone_answer_renderings_at_start(value.operands[0], depth + 1)
    elif isinstance(value, Result):
        call = value.call
        if call.method in END_METHODS and call.receiver is not None:
            yield from _lone_answer_renderings_at_start(call.receiver, depth + 1)
        elif _renders_answer_alone(call):
            yield call


def _ends_with_rendering(value: Value, depth: int = 0) -> bool:
    """Is a text a rendered chat, or joined with one at its end?"""
    if isinstance(value, Operation) and value.operator == "+" and depth < MAX_DEPTH:
        return _ends_with_rendering(value.operands[-1], depth + 1)
    return isinstance(value, Result) and value.call.method == RENDERS


def _renders_answer_alone(call: CallEvent) -> bool:
    """Is a template given one turn of the assistant, and nothing before it?"""
    if call.method != RENDERS or call.is_open or "chat_template" in call.keywords:
        return False
    chat = call.argument(0, "conversation")
    if isinstance(chat, Item) and isinstance(chat.key, Slice):
        return _is_last_turn_of_side(chat.base, chat.key)
    return isinstance(chat, Sequence) and _is_one_turn_of_assistant(chat)


def _is_last_turn_of_side(side: Value, part: Slice) -> bool:
    """Is this `row["chosen"][-1:]`: the last turn of a side, which is its answer?"""
    column = constant_of(side.key) if isinstance(side, Item) else None
    is_last = constant_of(part.start) == -1 and part.stop is None
    return is_last and _is_answer_key(column)


def _is_one_turn_of_assistant(chat: Sequence) -> bool:
    """Does a list, all of whose items are known, hold one turn, and that of the assistant?"""
    if chat.is_open or len(chat.items) != 1:
        return False
    turn = chat.items[0]
    return isinstance(turn, Mapping) and is_answering_role(constant_of(turn.entries.get("role")))


def _model_and_template_opening(module: Module, call: CallEvent) -> tuple[str, str] | None:
    """The model of a rendering, and what its template writes first; None where it may be nothing."""
    function = call.node.func if isinstance(call.node, ast.Call) else None
    tokenizer = function.value if isinstance(function, ast.Attribute) else None
    names = likely_model_names(module, tokenizer)
    openings = [_template_text_before_lone_answer(name) for name in names]
    first = openings[0] if openings else None
    return (names[0], first) if first is not None and all(openings) else None


def _template_text_before_lone_answer(name: str) -> str | None:
    """What the template of a published model writes before a lone answer."""
    normalized = normalized_model_name(name)
    return next((opening for start, opening in OPENINGS if re.match(start, normalized)), None)
