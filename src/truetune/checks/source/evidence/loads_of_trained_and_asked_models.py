"""Finds the calls that load the models of a file: those that it trains, and those that it asks for
text.

Two loadings of one name are two objects. Which of them was trained is told by the calls that each
came through, since one helper of a file may load several models.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.evaluate_constant_expressions import UNKNOWN
from truetune.source.infer_object_types import MEMBERS_GIVING_THE_OBJECT
from truetune.source.parsed_source_file import Module

LOADING_CALLS = ("*.from_pretrained", "transformers.pipeline", "vllm.LLM")
NAME_ARGUMENTS = ("pretrained_model_name_or_path", "model_name", "model")
# Moves and pipelines around one model. Chosen, not measured; it ends names that are bound to themselves in a loop.
MAX_STEPS = 6


class AskedModel(NamedTuple):
    """A call that generates, and what made its model."""

    node: ast.AST
    loads: tuple[ast.Call, ...]
    """Empty where the model is not made by one loading that is seen"""
    passed: frozenset[ast.Call]
    """Calls of functions of the file that it was got by: one function may load several models"""


class TrainedModel(NamedTuple):
    """A model that is trained."""

    load: ast.Call
    """What loads it; the call of the trainer where that is given a name"""
    passed: frozenset[ast.Call]


def generation_record_with_model_loads(
    module: Module, node: ast.AST, model: ast.expr
) -> AskedModel:
    """The record of a generation, with the calls that load the model which is asked."""
    return AskedModel(
        node, model_loads(module, model), module.flow.calls_value_passes_from_origins(model)
    )


def model_loads(module: Module, model: ast.expr) -> tuple[ast.Call, ...]:
    """The calls that load the model, through `.to(...)` and pipelines; empty where one way is not
    seen.
    """
    calls: list[ast.Call] = []
    waiting = [(model, 0)]
    while waiting:
        part, depth = waiting.pop()
        for origin in module.flow.origins(part):
            if not isinstance(origin.node, ast.Call) or depth > MAX_STEPS:
                return ()
            call = module.flow.call(origin.node)
            inner = _model_given_to_pipeline(module, call)
            if call.method in MEMBERS_GIVING_THE_OBJECT and call.receiver is not None:
                waiting.append((call.receiver, depth + 1))
            elif inner is not None:
                waiting.append((inner, depth + 1))
            elif call.named(*LOADING_CALLS):
                calls.append(origin.node)
            else:
                return ()
    return tuple(calls)


def _model_given_to_pipeline(module: Module, call: Call) -> ast.expr | None:
    """The model that a pipeline is given; None where it is given a name, or the call makes no
    pipeline.
    """
    node = _model_name_argument(call) if call.named("transformers.pipeline") else None
    loaded = module.flow.producing_call(node) if node is not None else None
    return node if loaded is not None and loaded.named(*LOADING_CALLS) else None


def _model_name_argument(call: Call) -> ast.expr | None:
    """The argument that names the model: the second of a pipeline, the first of the others."""
    position = 1 if call.named("transformers.pipeline") else 0
    given = (call.keywords.get(name) for name in NAME_ARGUMENTS)
    named = next((one for one in given if one is not None), None)
    return named if named is not None else call.argument(position, "model")


def trained_models(module: Module) -> Iterator[TrainedModel]:
    """The models that trainers and optimizers of the file are given."""
    for call in module.calls("transformers.*Trainer", "trl.*Trainer"):
        model = call.argument(0, "model")
        if model is not None:
            passed = module.flow.calls_value_passes_from_origins(model)
            calls = _loads_of_trained_model(module, model, call.node)
            yield from (TrainedModel(load, passed) for load in calls)
    for call in module.calls("torch.optim.*", "bitsandbytes.optim.*"):
        params_argument = call.argument(0, "params")
        if isinstance(params_argument, ast.Call) and isinstance(
            params_argument.func, ast.Attribute
        ):
            owner = params_argument.func.value
            passed = module.flow.calls_value_passes_from_origins(owner)
            yield from (
                TrainedModel(load, passed) for load in _loads_of_trained_model(module, owner, None)
            )


def _loads_of_trained_model(
    module: Module,
    model: ast.expr,
    trainer: ast.Call | None,
    seen: frozenset[ast.expr] = frozenset(),
) -> Iterator[ast.Call]:
    """What loads a model that is trained, through adapters and wrappers.

    `seen` holds the expressions on the way here: a model that is wrapped under its own name (`model
    = wrap(model)` in a loop, or before it is loaded) leads back to itself.
    """
    for origin in module.flow.origins(model):
        node = origin.node
        if node in seen:
            continue
        if isinstance(node, ast.Constant) and trainer is not None:
            yield trainer
        if not isinstance(node, ast.Call):
            continue
        call = module.flow.call(node)
        if call.named("peft.get_peft_model", "*.DistributedDataParallel", "torch.compile"):
            inner = call.argument(0, "model")
        else:
            inner = call.receiver if call.method in MEMBERS_GIVING_THE_OBJECT else None
        if inner is not None:
            yield from _loads_of_trained_model(module, inner, trainer, seen | {node})
        elif call.named("*.from_pretrained"):
            yield node


def is_second_load_of_base(module: Module, asked: AskedModel, trained: list[TrainedModel]) -> bool:
    """Is every way to its model a second loading of what was trained, by the same name?"""
    names = {
        name for one in trained if (name := _loaded_name_or_code(module, one.load)) is not None
    }
    for load in asked.loads:
        is_trained = any(
            one.load is load and not _are_loaded_separately(asked.passed, one.passed)
            for one in trained
        )
        if is_trained or _loaded_name_or_code(module, load) not in names:
            return False
    return True


def _are_loaded_separately(asked: frozenset[ast.Call], trained: frozenset[ast.Call]) -> bool:
    """Are they two objects, each got by a call of its own of the function that loads?"""
    return bool(asked and trained) and asked.isdisjoint(trained)


def _loaded_name_or_code(module: Module, load: ast.Call) -> str | None:
    """The name that a call loads, or the code of it where its value is not known."""
    node = _model_name_argument(module.flow.call(load))
    if node is None:
        return None
    value = module.flow.value(node)
    if value is not UNKNOWN:
        return str(value)
    origins = [origin.node for origin in module.flow.origins(node)]
    is_one = len(origins) == 1 and isinstance(origins[0], ast.Attribute | ast.Name | ast.Subscript)
    return ast.unparse(origins[0]) if is_one else None
