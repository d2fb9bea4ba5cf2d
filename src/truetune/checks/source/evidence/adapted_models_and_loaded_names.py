"""Finds models that are given an adapter or merged with one, and the names that models are loaded
under.

A name is told only where the code leaves one choice: every origin of the expression is followed,
through wrappers of PEFT and accelerate, and two different names (or one that is not written in the
file) give none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.examined_code_places import places_of_method_calls
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.find_command_line_option_values import (
    find_option_default,
    option_value_from_commands_by_attribute,
)
from truetune.source.parsed_source_file import Module

MERGES = places_of_method_calls("calls of merge_and_unload", "merge_and_unload")
ADAPTER_LOADS = ("peft.PeftModel*.from_pretrained",)
VLLM_ENGINES = ("vllm.LLM", "vllm.AsyncEngineArgs", "vllm.EngineArgs")
ENVIRONMENT_READERS = ("os.environ.get", "os.getenv", "environ.get", "os.environ.setdefault")
MAX_WRAPPERS = 5
"""`str(Path(os.environ.get(...)))` and names between them"""
LORA_REQUESTS = ("vllm.lora.request.LoRARequest",)


class AdaptedModel(NamedTuple):
    """A model that is given an adapter."""

    call: Call
    model: ast.expr
    """The model, or its name"""
    adapter: ast.expr


def models_given_loaded_adapter(module: Module) -> Iterator[AdaptedModel]:
    """The models of a file that are given an adapter which is loaded."""
    for call in module.calls(*ADAPTER_LOADS):
        model, adapter = call.argument(0, "model"), call.argument(1, "model_id")
        if model is not None and adapter is not None:
            yield AdaptedModel(call, model, adapter)
    for call in module.methods("load_adapter"):
        adapter = call.argument(0, "model_id") or call.keywords.get("peft_model_id")
        if call.receiver is not None and adapter is not None:
            yield AdaptedModel(call, call.receiver, adapter)
    yield from _models_adapted_by_vllm(module)


def _models_adapted_by_vllm(module: Module) -> Iterator[AdaptedModel]:
    """The models of vLLM engines that are given an adapter by their requests."""
    engines = [call.argument(0, "model") for call in module.calls(*VLLM_ENGINES)]
    # A request names no engine: with two of them it is not known which one gets the adapter.
    if len(engines) != 1 or engines[0] is None:
        return
    for call in module.calls(*LORA_REQUESTS):
        adapter = call.argument(2, "lora_path")
        if adapter is not None:
            yield AdaptedModel(call, engines[0], adapter)


def written_name_of_loaded_model(module: Module, model: ast.expr) -> str | None:
    """The name that a model was loaded under; None where the file does not say one."""
    value = literal_or_default_text_of_expression(module, model)
    return value if value is not None else only_name_loaded_under(module, model)


def literal_or_default_text_of_expression(
    module: Module, expression: ast.expr | None
) -> str | None:
    """The text that an expression stands for, as the file writes it: also as the default of a
    variable of the environment (`os.environ.get("BASE", "owner/model")`) or of an option, and
    inside of `str()` and `Path()`.

    A launch may give another value; what the file writes is what it does without one.
    """
    for _ in range(MAX_WRAPPERS):
        if expression is None:
            return None
        value = module.flow.value(expression)
        if isinstance(value, str):
            return value
        given = _text_given_by_command(module, expression)
        if given is not None:
            return given
        expression = _wrapped_text_expression(module, expression)
    return None


def _text_given_by_command(module: Module, expression: ast.expr) -> str | None:
    """The text that the commands beside a script give for the option that an expression is; None
    where it is none.
    """
    origins = module.flow.origins(expression)
    given_option = (
        option_value_from_commands_by_attribute(module, origins[0].node)
        if len(origins) == 1
        else None
    )
    return (
        given_option.value
        if given_option is not None and isinstance(given_option.value, str)
        else None
    )


def _wrapped_text_expression(module: Module, expression: ast.expr) -> ast.expr | None:
    """The expression inside of a wrapper of a text: its default, its argument, or what a name was
    given; None otherwise.
    """
    origins = [origin.node for origin in module.flow.origins(expression)]
    if len(origins) != 1:
        return None
    (node,) = origins
    if isinstance(node, ast.Attribute | ast.Subscript):
        return find_option_default(module, node)
    if not isinstance(node, ast.Call):
        return None
    call = module.flow.call(node)
    if call.named(*ENVIRONMENT_READERS):
        return call.argument(1, "default")
    if call.named("str", "pathlib.Path", "os.fspath") and len(call.args) == 1:
        return call.args[0]
    return None


def only_name_loaded_under(module: Module, expression: ast.expr) -> str | None:
    """The one name that it is loaded under; None where there are several, or one is not written in
    the file.
    """
    names: set[object] = set()
    for origin in module.flow.origins(expression):
        name = (
            module.flow.value(origin.node)
            if isinstance(origin.node, ast.Constant)
            else _name_of_loaded_model(module, origin.node)
        )
        names.add(name)
    if len(names) != 1:
        return None
    (only,) = names
    return only if isinstance(only, str) else None


def _name_of_loaded_model(module: Module, node: ast.AST) -> object:
    """The name that the load at the end of a chain of wrappers is given; no text where it is not
    written in the file.
    """
    while isinstance(node, ast.Call):
        call = module.flow.call(node)
        if call.named("*.from_pretrained") and not call.named("peft.*"):
            return literal_or_default_text_of_expression(
                module, call.argument(0, "pretrained_model_name_or_path")
            )
        wrapped = call.argument(0, "model") if call.named("peft.*", "*.prepare") else call.receiver
        inner = (
            [origin.node for origin in module.flow.origins(wrapped)] if wrapped is not None else []
        )
        if len(inner) != 1 or inner[0] is node:
            return None
        node = inner[0]
    return None
