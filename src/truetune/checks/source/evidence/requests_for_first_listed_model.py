"""Finds requests that name the first model which a server lists:

`client.models.list().data[0].id`.

How it works: the symbolic run gives the value of `model` in each request; it is followed back to
the list of the server, by the client of OpenAI or by a plain request of `/v1/models`.

The trade-off: only an index of 0 is told, not `next(iter(...))`, whose item is taken for any of the
list. A name that a loop or a condition chooses from it may be any.
"""

from __future__ import annotations

import ast

from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_of_events import CallEvent
from truetune.source.symbolic_execution.values_of_run import (
    Attribute,
    Choice,
    Item,
    Mapping,
    Result,
    Value,
)

LIST_ADDRESS = "/models"
MAX_STEPS = 8
"""Calls and attributes between the answer of a server and its list: `list(client.models.list()).data` has three"""


def first_listed_models(module: Module) -> frozenset[ast.AST]:
    """The expressions of a file, in requests, whose value is the first model that a server lists."""
    nodes: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for call in trace.all_calls:
            if call.home.path != module.path or not isinstance(call.node, ast.Call):
                continue
            nodes.update(_first_listed_names_of_request(call, call.node))
    return frozenset(nodes)


def _first_listed_names_of_request(call: CallEvent, node: ast.Call) -> list[ast.AST]:
    """The expressions of one request that name the first listed model: its argument, or the key of
    its body.
    """
    body = call.keywords.get("json")
    in_body = body.entries.get("model") if isinstance(body, Mapping) else None
    if in_body is not None and _is_first_listed_id(in_body):
        return [
            value
            for part in ast.walk(node)
            if isinstance(part, ast.Dict)
            for key, value in zip(part.keys, part.values, strict=True)
            if isinstance(key, ast.Constant) and key.value == "model"
        ]
    if not _is_first_listed_id(call.keywords.get("model")):
        return []
    return [keyword.value for keyword in node.keywords if keyword.arg == "model"]


def _is_first_listed_id(value: Value | None) -> bool:
    """Is it the id of the first model of a list?"""
    if isinstance(value, Choice):
        return all(map(_is_first_listed_id, value.options))
    inner = _owner_of_attribute_or_item(value, "id")
    return inner is not None and _is_first_listed_model(inner)


def _owner_of_attribute_or_item(value: Value | None, name: str) -> Value | None:
    """What an attribute or item of that name belongs to; None for any other value."""
    if isinstance(value, Attribute) and value.name == name:
        return value.base
    if isinstance(value, Item) and constant_of(value.key) == name:
        return value.base
    return None


def _is_first_listed_model(value: Value) -> bool:
    """Is it the first item of a server's list of models?"""
    if isinstance(value, Item) and constant_of(value.key) == 0:
        return _is_list_of_models(value.base)
    return False


def _is_list_of_models(value: Value) -> bool:
    """Is it what a server answers to the question for its models, or the list in it?"""
    for _ in range(MAX_STEPS):
        if not isinstance(value, Result):
            inner = _owner_of_attribute_or_item(value, "data")
            if inner is None:
                return False
            value = inner
            continue
        call = value.call
        if call.method == "list" and isinstance(call.receiver, Attribute):
            return call.receiver.name == "models"
        if call.method == "json" and isinstance(call.receiver, Result):
            return _asks_for_models(call.receiver.call)
        if not call.named("list", "iter") or not call.args:
            return False
        value = call.args[0]
    return False


def _asks_for_models(call: CallEvent) -> bool:
    """Is it a request of the list of models: `requests.get(url + "/v1/models")`?"""
    address = constant_of(call.argument(0, "url"))
    return isinstance(address, str) and address.rstrip("/").endswith(LIST_ADDRESS)
