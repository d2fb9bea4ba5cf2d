"""Finds the models that a script loads, and the paths that it names by constants."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module

PIPELINES = ("transformers.pipeline", "transformers.pipelines.pipeline")


LOADERS = (
    "transformers.*Model*.from_pretrained",
    "peft.*Model*.from_pretrained",
    "vllm.LLM",
    "vllm.engine.*.LLM",
)


def model_loads_and_paths(module: Module) -> Iterator[tuple[Call, ast.expr]]:
    """The calls that load a model, and the path that they are given."""
    for call in module.calls(*LOADERS, *PIPELINES):
        expression = _path_argument(call)
        # A pipeline may be given a model that was loaded before.
        if expression is not None and (
            not call.named(*PIPELINES) or _is_not_made_by_call(module, expression)
        ):
            yield call, expression


def _path_argument(call: Call) -> ast.expr | None:
    """The argument of a loader that says which model."""
    if call.named("peft.*"):
        return call.argument(1, "model_id")
    if call.named(*PIPELINES):
        return call.argument(1, "model")
    name = "model" if call.named("vllm.*") else "pretrained_model_name_or_path"
    return call.argument(0, name)


def _is_not_made_by_call(module: Module, expression: ast.expr) -> bool:
    """Is this no object that another call made?"""
    producer = module.flow.producing_call(expression)
    return producer is None or not producer.named("*.from_pretrained", "*.get_peft_model")


def constant_path(module: Module, given: ast.expr) -> str:
    """The path that an expression is, where it is one text of the project; empty for anything else."""
    value = module.flow.value(given)
    return value if isinstance(value, str) else ""
