"""Finds models that are wrapped for several processes, and calls that go around the wrapper."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.checks.source.evidence.does_script_train_sharded_weights import (
    may_run_under_deepspeed,
)
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import (
    may_record_gradients,
)
from truetune.source.infer_object_types import MEMBERS_GIVING_THE_OBJECT
from truetune.source.parsed_source_file import Module

WRAPPERS = ("torch.*.DistributedDataParallel", "torch.*.FullyShardedDataParallel")
UNWRAPS = ("unwrap_model", "extract_model_from_parallel")
DEPTH = 6
"""Names and casts between a wrapper and its model"""


def models_given_to_wrappers(module: Module) -> Iterator[ast.expr]:
    """What is given to a wrapper of several processes, or to `accelerator.prepare`."""
    for call in module.calls(*WRAPPERS):
        if (model := call.argument(0, "module")) is not None:
            yield model
    for call in module.methods("prepare", "prepare_model"):
        if call.receiver is not None and "accelerator" in module.flow.types(call.receiver):
            yield from (part for part in call.args if "model" in module.flow.types(part))


def model_called_without_its_wrapper(
    module: Module, forward: ast.Call, bare: list[ast.AST]
) -> tuple[ast.expr, str] | None:
    """The model that is called without its wrapper, and the wrapper's name; None where the wrapper
    itself is called.
    """
    called = forward.func
    if isinstance(called, ast.Attribute) and called.attr == "forward":
        called = called.value
    if isinstance(called, ast.Attribute) and called.attr != "module":
        return _model_attribute_inside_wrapper(module, called)
    for node in _possible_called_models(module, called):
        name = _name_of_wrapper_around(module, node, bare)
        if name is not None:
            return node, name
    return None


def _model_attribute_inside_wrapper(
    module: Module, called: ast.Attribute
) -> tuple[ast.expr, str] | None:
    """The model inside a wrapper that an attribute or property is, with the wrapper's name, where
    it may be nothing else; None otherwise.

    A loop that unwraps its model at the end (`self.model = self.model.module`, to save it) has
    called the wrapper.
    """
    values = [value for value, path in module.flow.values_assigned_to_attribute(called) if not path]
    values = values or _values_of_property(module, called)
    names = [_name_of_wrapper_model_was_taken_from(module, value) for value in values]
    first = names[0] if names else None
    return (called, first) if first is not None and None not in names else None


def _values_of_property(module: Module, called: ast.Attribute) -> list[ast.expr]:
    """What a property gives back; empty for any other attribute."""
    method = module.flow.function_called(called)
    if not isinstance(method, ast.FunctionDef):
        return []
    is_property = any(ast.unparse(one).endswith("property") for one in method.decorator_list)
    return module.flow.returned_expressions_by_function.get(method, []) if is_property else []


def _possible_called_models(module: Module, called: ast.expr) -> list[ast.expr]:
    """The expressions that a called name stands for: of a parameter, what each call that records
    gradients gives.

    A helper is called with the policy and with its reference, and only one of them is trained.
    """
    bindings = module.scopes.bindings_that_reach(called) if isinstance(called, ast.Name) else []
    parameters = [binding.node for binding in bindings if isinstance(binding.node, ast.arg)]
    if len(bindings) != 1 or not parameters:
        return [called]
    nodes = module.flow.arguments_given(parameters[0])
    recording = [one for one in nodes if may_record_gradients(module, one)]
    return recording if len(nodes) > 1 else [called]


def _name_of_wrapper_around(module: Module, called: ast.expr, bare: list[ast.AST]) -> str | None:
    """The name of the wrapper around a model that is called; None where it is the wrapper itself."""
    inside = _name_of_wrapper_model_was_taken_from(module, called)
    if inside is not None:
        return inside
    is_bare = isinstance(called, ast.Name | ast.Call) and set(
        constructions_of_model(module, called)
    ) <= set(bare)
    return _name_wrapper_is_bound_to(module, bare) if is_bare else None


def _name_of_wrapper_model_was_taken_from(module: Module, model: ast.expr) -> str | None:
    """The name of the wrapper that a model was taken out of; None where it was not."""
    for origin in module.flow.origins(model):
        wrapper = _wrapper_that_expression_unwraps(module, origin.node)
        if wrapper is not None and _is_wrapped_for_several_processes(module, wrapper):
            return ast.unparse(wrapper)
    return None


def _wrapper_that_expression_unwraps(module: Module, node: ast.AST) -> ast.expr | None:
    """The wrapper that an expression takes its model out of: `model` of `model.module`,
    `getattr(model, "module", model)` and `accelerator.unwrap_model(model)`; None otherwise.
    """
    if isinstance(node, ast.Attribute) and node.attr == "module":
        return node.value
    if isinstance(node, ast.Call):
        if ast.unparse(node.func) == "getattr" and len(node.args) > 1:
            return node.args[0] if module.flow.value(node.args[1]) == "module" else None
        call = module.flow.call(node)
        is_unwrap = call.method in UNWRAPS or call.named(*(f"accelerate.{n}" for n in UNWRAPS))
        return call.argument(0, "model") if is_unwrap else None
    return None


def _is_wrapped_for_several_processes(module: Module, model: ast.expr) -> bool:
    """Is it a model that is wrapped for several processes, by PyTorch or accelerate?"""
    for origin in module.flow.origins(model):
        if not isinstance(origin.node, ast.Call):
            continue
        call = module.flow.call(origin.node)
        if call.named(*WRAPPERS):
            return True
        of_accelerate = (
            call.method in ("prepare", "prepare_model")
            and call.receiver is not None
            and "accelerator" in module.flow.types(call.receiver)
        )
        if of_accelerate:
            return not may_run_under_deepspeed(module)
    return False


def constructions_of_model(module: Module, model: ast.expr) -> list[ast.AST]:
    """The calls that made the object, through `.to(...)`, `.train()` and the like."""
    objects: list[ast.AST] = []
    waiting = [(model, 0)]
    while waiting:
        part, depth = waiting.pop()
        for origin in module.flow.origins(part):
            node = origin.node
            call = module.flow.call(node) if isinstance(node, ast.Call) else None
            if (
                call is not None
                and call.method in MEMBERS_GIVING_THE_OBJECT
                and call.receiver
                and depth < DEPTH
            ):
                waiting.append((call.receiver, depth + 1))
            else:
                objects.append(node)
    return objects


def _name_wrapper_is_bound_to(module: Module, bare: list[ast.AST]) -> str | None:
    """The name that the wrapper is bound to; None where it replaces the name of its model, or
    DeepSpeed may run.
    """
    for call in (*module.calls(*WRAPPERS), *module.methods("prepare", "prepare_model")):
        statement = module.scopes.parent.get(call.node)
        if not isinstance(statement, ast.Assign) or not call.args:
            continue
        of_accelerate = not call.named(*WRAPPERS)
        if of_accelerate and may_run_under_deepspeed(module):
            continue
        for number, model in enumerate(call.args):
            named = _assignment_target_of_argument(statement.targets[0], number)
            if named is None or ast.unparse(named) == ast.unparse(model):
                continue
            if any(one in bare for one in constructions_of_model(module, model)):
                return ast.unparse(named)
    return None


def _assignment_target_of_argument(target: ast.expr, number: int) -> ast.expr | None:
    """The target that is assigned the argument of this number: in `model, loader =
    accelerator.prepare(model, loader)`; None where none is.
    """
    if isinstance(target, ast.Tuple) and number < len(target.elts):
        return target.elts[number]
    return target if number == 0 else None
