"""Finds requests to a server or an engine whose temperature is so high that answers turn into
noise.

How it works: the symbolic run gives each call with its arguments; a call is a request where its
arguments, or the dictionaries among them, hold a prompt beside the temperature, or where it makes a
client that keeps the temperature. The trade-off: settings that are not known, and any other setting
that cuts unlikely tokens off, mean silence.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.call_with_resolved_names_and_arguments import last_name_of_called
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import Mapping, Value

TEMPERATURE = "temperature"
PROMPTS = frozenset(("messages", "prompt", "prompts", "input", "inputs", "text"))
CLIENT_CLASSES = ("ChatOpenAI", "ChatOllama", "OllamaLLM", "VLLMOpenAI", "LlamaCpp", "OpenAILike")
"""Classes of LangChain and LlamaIndex that are given the temperature when they are made"""
HOT = 1.5
"""As in the table of limits: published models use 0.1 to 1.0"""
CUTS_BELOW = {"top_p": 0.8, "top_k": 20}
"""Settings that leave few tokens at any temperature -> the highest value that does"""
CUTS_ABOVE = {"min_p": 0.05, "top_n_sigma": 0.0}
"""The same -> the value from which on"""
MAX_DEPTH = 3
"""Dictionaries in one another: a body, its `extra_body`, and `options`"""


class HotRequest(NamedTuple):
    """One request with a high temperature."""

    node: ast.AST
    value: float


def hot_requests(module: Module) -> Iterator[HotRequest]:
    """The requests of a file with a temperature of HOT and more, each place once."""
    if not module.mentions(TEMPERATURE):
        return
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.all_calls:
            if call.home.path != module.path or call.is_in_later_loop_pass:
                continue
            hot_request = _hot_request(call)
            if hot_request is not None and hot_request.node not in seen:
                seen.add(hot_request.node)
                yield hot_request


def _hot_request(call: CallEvent) -> HotRequest | None:
    """What one call asks for; None where it is no request, or is none with a high temperature."""
    values = dict(_arguments_and_nested_entries(call.keywords))
    for argument in call.args:
        if isinstance(argument, Mapping):
            values.update(_arguments_and_nested_entries(argument.entries))
    given = values.get(TEMPERATURE)
    if given is None or not (
        PROMPTS & values.keys() or _makes_langchain_or_llamaindex_client(call)
    ):
        return None
    value = constant_of(given)
    if not isinstance(value, int | float) or value < HOT or _unlikely_tokens_may_be_cut(values):
        return None
    return HotRequest(given.node or call.node, float(value))


def _makes_langchain_or_llamaindex_client(call: CallEvent) -> bool:
    """Does it make an object of LangChain or LlamaIndex that asks later?"""
    return isinstance(call.node, ast.Call) and last_name_of_called(call.node) in CLIENT_CLASSES


def _unlikely_tokens_may_be_cut(values: dict[str, Value]) -> bool:
    """Are unlikely tokens cut off otherwise, or may they be?"""
    for name, limit in (*CUTS_BELOW.items(), *CUTS_ABOVE.items()):
        value = constant_of(values[name]) if name in values else None
        if value is None:
            continue
        if not isinstance(value, int | float):
            return True
        # 0 and -1 switch a setting off.
        if value > 0 and (value <= limit if name in CUTS_BELOW else value >= limit):
            return True
    return False


def _arguments_and_nested_entries(
    entries: dict[str, Value], depth: int = 0
) -> Iterator[tuple[str, Value]]:
    """The arguments of a call, and the entries of the dictionaries among them."""
    for name, value in entries.items():
        yield name, value
        if isinstance(value, Mapping) and depth < MAX_DEPTH:
            yield from _arguments_and_nested_entries(value.entries, depth + 1)
