"""Says whether chat templates are told to reason, for the rows of a training and for questions, by
a symbolic run.

The trade-off: a value that is not known makes the whole file unknown. Rows are what is rendered
without the header of an answer, questions what is rendered with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import NO_CONSTANT, Attribute, Mapping, Value

RENDERS = ("apply_chat_template",)
SWITCH = "enable_thinking"
REASONS_BY_DEFAULT = re.compile(r"Qwen3-(?!.*(?:Instruct|Coder))|SmolLM3|GLM-4\.[56]", re.I)
"""Names of models whose template reasons where it is told nothing"""
REASONING_MARK = "<think>"
EMPTY_BLOCK = re.compile(r"<think>\s*</think>")


@dataclass(frozen=True, slots=True)
class ReasoningSwitch:
    """A place that renders a chat, and whether it tells the template to reason."""

    node: ast.AST
    thinks: bool | None
    """None: it is not told"""
    thinks_by_default: bool = False
    """Of a training: does the template reason where it is told nothing?"""


def reasoning_switch_of_training_rows(module: Module) -> ReasoningSwitch | None:
    """How a training renders its rows; None where it does not say, or says both."""
    states: dict[bool | None, ast.AST] = {}
    for call in _chat_renders(module):
        if constant_of(call.keywords.get("add_generation_prompt")) is True:
            continue
        state = _is_template_told_to_reason(call.keywords)
        if state is NO_CONSTANT:
            return None
        states.setdefault(state, call.node)
    if len(states) != 1:
        return None
    state, node = next(iter(states.items()))
    written = next(_texts_writing_reasoning(module), None)
    if written is not None:
        state, node = True, written
    return None if state is None else ReasoningSwitch(node, state, model_reasons_by_default(module))


def model_reasons_by_default(module: Module) -> bool:
    """Does a file name a model whose template reasons where it is told nothing?"""
    return REASONS_BY_DEFAULT.search(module.text) is not None


def reasoning_switches_of_rendered_questions(module: Module) -> Iterator[ReasoningSwitch]:
    """How a file renders its questions, or tells a server to; each place once."""
    seen: set[ast.AST] = set()
    for call in (*_chat_renders_with_generation_prompt(module), *_chat_requests(module)):
        state = _is_template_told_to_reason(_template_settings(call))
        if state is NO_CONSTANT or call.node in seen:
            continue
        seen.add(call.node)
        yield ReasoningSwitch(call.node, state)


def _chat_renders(module: Module) -> Iterator[CallEvent]:
    """The calls of a file that render chats."""
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.methods(*RENDERS):
            if call.home.path == module.path:
                yield call


def _chat_renders_with_generation_prompt(module: Module) -> Iterator[CallEvent]:
    """The calls that render a question, with the header of its answer."""
    for call in _chat_renders(module):
        if constant_of(call.keywords.get("add_generation_prompt")) is True and not call.is_open:
            yield call


def _chat_requests(module: Module) -> Iterator[CallEvent]:
    """The chats that a file sends to a server."""
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.methods("create", "parse", "chat"):
            is_client = isinstance(call.receiver, Attribute) and call.receiver.name == "completions"
            is_engine = call.method == "chat" and call.named("vllm.LLM.chat")
            if call.home.path == module.path and (is_client or is_engine) and not call.is_open:
                yield call


def _template_settings(call: CallEvent) -> dict[str, Value]:
    """What a call tells the template: its own arguments, or `chat_template_kwargs` of a request."""
    settings = dict(call.keywords)
    body = call.keywords.get("extra_body")
    if isinstance(body, Mapping):
        settings.update({key: one for key, one in body.entries.items() if isinstance(key, str)})
    nested = settings.get("chat_template_kwargs")
    if isinstance(nested, Mapping):
        settings.update({key: one for key, one in nested.entries.items() if isinstance(key, str)})
        return settings
    unread = nested if nested is not None else body
    if unread is not None and not isinstance(unread, Mapping):
        # What is not a dictionary may hold the switch: its value makes it unknown.
        settings[SWITCH] = unread
    return settings


def _is_template_told_to_reason(settings: dict[str, Value]) -> bool | None:
    """Is the template told to reason? None where it is told nothing; NO_CONSTANT where that is not
    known.
    """
    value = settings.get(SWITCH)
    if value is None:
        return None
    plain = constant_of(value)
    return plain if isinstance(plain, bool) else NO_CONSTANT


def _texts_writing_reasoning(module: Module) -> Iterator[ast.AST]:
    """The texts of a file that put reasoning into its rows."""
    for node in module.nodes(ast.Constant):
        text = node.value
        if isinstance(text, str) and REASONING_MARK in text and not EMPTY_BLOCK.search(text):
            # As a part of a larger text it is written; as an argument it may be what is cut out of rows.
            if isinstance(module.scopes.parent.get(node), ast.BinOp | ast.JoinedStr):
                yield node
