"""Finds where models give log-probabilities in a hand-written loop, and says which of them are one
object.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from truetune.source.data_flow import Origin
from truetune.source.infer_object_types import MEMBERS_GIVING_THE_OBJECT
from truetune.source.parsed_source_file import Module

REFERENCE = re.compile(r"(^|[_.])ref(erence)?s?(_|$|\d)|^ref(?!ine|resh|use)|reference", re.I)
"""Names of a reference model, or of what it gives"""
WRAPPERS = (
    "peft.get_peft_model",
    "peft.PeftModel*",
    "peft.prepare_model_for_kbit_training",
    "torch.compile",
    "*.DistributedDataParallel",
    "copy.copy",
)
"""Calls whose result computes with the model that they are given, and changes it where they change anything; a shallow
copy shares all parameters"""
CACHES = ("functools.lru_cache", "functools.cache", "streamlit.cache_resource")
"""Decorators of functions that give one object again for the same arguments"""
# Chosen: wrappers around one model; a circle of names ends there.
DEPTH = 8


@dataclass(frozen=True, slots=True)
class ModelUse:
    """A call that runs a model: `logps(policy, batch)`, or `policy(**batch)`."""

    call: ast.Call
    model: ast.expr
    how: str
    """The function that runs the model; empty where it is called itself"""
    of_reference: bool
    """Its name, or that of what it gives, says that it is a reference"""
    without_gradient: bool


def model_uses(module: Module) -> Iterator[ModelUse]:
    """The calls that run a model, or give one to a function."""
    for call in module.nodes(ast.Call):
        if "model" in module.flow.types(call.func):
            yield _make_model_use(module, call, call.func, "")
            continue
        # A function with a dotted name of a library runs no model of the script.
        if module.flow.name(call.func) is not None:
            continue
        for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
            if isinstance(argument, ast.Name | ast.Attribute) and "model" in module.flow.types(
                argument
            ):
                yield _make_model_use(module, call, argument, ast.unparse(call.func))


def _make_model_use(module: Module, call: ast.Call, model: ast.expr, how: str) -> ModelUse:
    """The record of a use of a model, with what its names and the contexts around it say."""
    names = [ast.unparse(model)]
    statement = module.statement(call)
    if isinstance(statement, ast.Assign):
        names += [
            ast.unparse(name) for target in statement.targets for name in _names_in_target(target)
        ]
    around = (node for node in module.parents(call) if isinstance(node, ast.With))
    contexts = (ast.unparse(item.context_expr) for node in around for item in node.items)
    is_frozen = any("no_grad" in text or "inference_mode" in text for text in contexts)
    return ModelUse(call, model, how, any(REFERENCE.search(name) for name in names), is_frozen)


def _names_in_target(target: ast.expr) -> list[ast.expr]:
    """The names that a target of an assignment holds."""
    return list(target.elts) if isinstance(target, ast.Tuple | ast.List) else [target]


def run_in_same_pass(module: Module, one: ast.AST, other: ast.AST) -> bool:
    """Do both run at each step: in one loop, or in one function without a loop around either?

    A reference that a loop of its own computes before training is that of the untrained model.
    """
    first, second = _loops_and_function(module, one), _loops_and_function(module, other)
    if first[:-1] or second[:-1]:
        return any(loop in second[:-1] for loop in first[:-1])
    # Outside of loops and functions code runs once: nothing moves between the two calls.
    return first[-1] is second[-1] and not isinstance(first[-1], ast.Module)


def _loops_and_function(module: Module, node: ast.AST) -> list[ast.AST]:
    """The loops around a node, from the inside out, and the function that it stands in."""
    scopes: list[ast.AST] = []
    for around in module.parents(node):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module):
            return [*scopes, around]
        if isinstance(around, ast.For | ast.While):
            scopes.append(around)
    return [*scopes, module.tree]


def are_one_model_object(module: Module, one: ast.expr, other: ast.expr) -> bool:
    """Are two expressions certainly one model in memory?"""
    first, second = (
        model_origin_and_calls_passed(module, one),
        model_origin_and_calls_passed(module, other),
    )
    return first is not None and first == second and isinstance(first[0].node, ast.Call)


def model_origin_and_calls_passed(
    module: Module, model: ast.expr
) -> tuple[Origin, frozenset[ast.Call]] | None:
    """What made the object, and by which calls of functions it was got; None where that is not one
    thing.
    """
    passed: frozenset[ast.Call] = frozenset()
    for _ in range(DEPTH):
        origins = module.flow.origins(model)
        if len(origins) != 1 or origins[0].element:
            return None
        passed |= {
            _first_call_of_same_object(module, call)
            for call in module.flow.calls_value_passes_from_origins(model)
        }
        inner = _model_of_method_or_wrapper(module, origins[0].node)
        if inner is None:
            return origins[0], passed
        model = inner
    return None


def _first_call_of_same_object(module: Module, call: ast.Call) -> ast.Call:
    """The first call that gave the object of this one: an earlier one of a cached function with the
    same arguments.
    """
    function = module.flow.function_that_expression_names(call.func)
    if not isinstance(function, ast.FunctionDef) or not _results_are_cached(module, function):
        return call
    alike = (
        one
        for one in module.flow.calls_of_function_or_class(function)
        if _has_same_arguments(module, one, call)
    )
    return next(alike, call)


def _results_are_cached(module: Module, function: ast.FunctionDef) -> bool:
    """Does a decorator keep the results of a function: `@cache`, `@lru_cache(maxsize=None)`?"""
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if module.flow.name(called) in CACHES:
            # `lru_cache(maxsize=0)` keeps nothing.
            return not (isinstance(decorator, ast.Call) and _cache_size_is_zero(module, decorator))
    return False


def _cache_size_is_zero(module: Module, decorator: ast.Call) -> bool:
    """Is the size of a cache zero?"""
    size = module.flow.call(decorator).argument(0, "maxsize")
    return size is not None and module.flow.value(size) == 0


def _has_same_arguments(module: Module, one: ast.Call, other: ast.Call) -> bool:
    """Do two calls give the same words, whose names stand for the same things?"""
    if ast.dump(one) != ast.dump(other):
        return False
    names = (node for node in ast.walk(one) if isinstance(node, ast.Name))
    other_names = (node for node in ast.walk(other) if isinstance(node, ast.Name))
    return all(
        module.scopes.bindings_that_reach(name) == module.scopes.bindings_that_reach(other_name)
        for name, other_name in zip(names, other_names, strict=True)
    )


def _model_of_method_or_wrapper(module: Module, node: ast.AST) -> ast.expr | None:
    """The model that `policy.eval()` or `get_peft_model(policy, lora)` gives, or wraps."""
    if not isinstance(node, ast.Call):
        return None
    call = module.flow.call(node)
    if call.named(*WRAPPERS):
        return call.argument(0, "model")
    return (
        call.receiver
        if call.method in MEMBERS_GIVING_THE_OBJECT and call.receiver is not None
        else None
    )
