"""Finds optimizers that hold other weights than those that the loss trains."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.backward_and_optimizer_step_calls import is_backward_call
from truetune.checks.source.evidence.models_giving_logprobs_in_own_loop import (
    ModelUse,
    model_origin_and_calls_passed,
    model_uses,
)
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import (
    may_record_gradients,
)
from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.data_flow import Origin
from truetune.source.infer_object_types import MEMBERS_GIVING_THE_OBJECT
from truetune.source.name_bindings_in_scopes import Binding
from truetune.source.parsed_source_file import Module

LOOPS = (ast.For, ast.AsyncFor, ast.While)
PARAMETER_METHODS = ("parameters", "named_parameters")
MAX_GROUPS = 4
"""Names between an optimizer and the parameters: groups, their lists, and the function that makes them"""


class OtherWeights(NamedTuple):
    """An optimizer that holds other weights than those that are trained."""

    text: str
    fix: str
    place: ast.AST
    """What shows it"""


def owners_of_parameters(module: Module, optimizer: Call) -> list[ast.expr]:
    """The models whose parameters an optimizer is given: `model` of `[p for p in
    model.parameters()]`.

    Through names of lists, groups of parameters and functions of the files that make them.
    """
    params_argument = optimizer.argument(0, "params")
    owners: list[ast.expr] = []
    seen: set[ast.AST] = set()
    waiting: list[tuple[ast.AST, int]] = [] if params_argument is None else [(params_argument, 0)]
    while waiting:
        expression, depth = waiting.pop(0)
        if expression in seen or depth > MAX_GROUPS:
            continue
        seen.add(expression)
        for part in ast.walk(expression):
            if isinstance(part, ast.Attribute) and part.attr in PARAMETER_METHODS:
                owners.append(part.value)
            elif isinstance(part, ast.Name | ast.Call) or part is expression:
                waiting += [
                    (origin.node, depth + 1) for origin in _origins_of_expression(module, part)
                ]
    return list(dict.fromkeys(owners))


def _origins_of_expression(module: Module, node: ast.AST) -> list[Origin]:
    """The expressions that another one stands for; no function, and no element of a loop over a
    model's parameters.
    """
    origins = module.flow.origins(node)
    return [one for one in origins if isinstance(one.node, ast.expr) and one.node is not node]


def difference_of_held_and_trained_weights(module: Module, optimizer: Call) -> OtherWeights | None:
    """How the weights of an optimizer differ from those that are trained; None where they don't, or
    it is not known.
    """
    if any(module.methods("add_param_group")):
        return None
    owners = owners_of_parameters(module, optimizer)
    if len({ast.unparse(owner) for owner in owners}) != 1:
        return None
    return _weights_of_another_model(module, optimizer, owners[0]) or _weights_of_replaced_model(
        module, optimizer, owners[0]
    )


def _weights_of_another_model(
    module: Module, optimizer: Call, owner: ast.expr
) -> OtherWeights | None:
    """The model that computes the loss, where the optimizer holds that of another object."""
    held = model_origin_and_calls_passed(module, owner)
    if held is None or not isinstance(held[0].node, ast.Call):
        return None
    uses = [use for use in model_uses(module) if _runs_model_not_a_parameter(module, use)]
    trained = [use for use in uses if _run_records_graph(module, use)]
    if not trained or not _all_runs_are_of_other_models(module, trained, held):
        return None
    name, name_of_trained = module.text_of(owner), module.text_of(trained[0].model)
    if _does_held_model_run_untrained(module, held, uses, trained):
        return OtherWeights(
            f"the optimizer holds the weights of {name}, which computes without gradients: those of"
            f" {name_of_trained} are never updated",
            f"give it {name_of_trained}.parameters()",
            trained[0].call,
        )
    again = next(_later_rebindings(module, optimizer, owner, trained), None)
    if again is None:
        return None
    return _other_weights_after_reload(name, again)


def _all_runs_are_of_other_models(
    module: Module, uses: list[ModelUse], held: tuple[Origin, frozenset[ast.Call]]
) -> bool:
    """Is it known of each model that runs which one it is, and is none the one whose weights an
    optimizer holds?
    """
    sources = [model_origin_and_calls_passed(module, use.model) for use in uses]
    return all(source is not None and source != held for source in sources)


def _other_weights_after_reload(name: str, place: ast.AST) -> OtherWeights:
    """The finding of a model that is loaded again, so that the optimizer keeps the weights of the
    first load.
    """
    return OtherWeights(
        f"{name} is loaded again after the optimizer is made, which holds the weights of the first: the new weights"
        " are never updated",
        "load the model once, before the optimizer is made, or make the optimizer again",
        place,
    )


def _weights_of_replaced_model(
    module: Module, optimizer: Call, owner: ast.expr
) -> OtherWeights | None:
    """The second model under the name of the first, in a branch or a loop behind the optimizer,
    that is trained.
    """
    if not isinstance(owner, ast.Name):
        return None
    held = model_origin_and_calls_passed(module, owner)
    if held is None or not isinstance(held[0].node, ast.Call):
        return None
    scope = module.scopes.scope_that_binds_name(owner)
    for binding in scope.bindings.get(owner.id, ()):
        is_behind = binding.position > (optimizer.node.lineno, optimizer.node.col_offset)
        if not is_behind or binding.value is None or not _is_new_model(module, binding, owner.id):
            continue
        if not _are_in_one_loop(module, optimizer.node, binding.value) and any(
            _binding_is_trained(module, read, binding)
            for read in module.name_reads.get(owner.id, ())
            if module.scopes.scope_that_binds_name(read) is scope
        ):
            return _other_weights_after_reload(owner.id, binding.value)
    return None


def _is_new_model(module: Module, binding: Binding, name: str) -> bool:
    """Does a binding give a model that is loaded there, and not made of what the name held before?"""
    value = binding.value
    if binding.kind != "value" or value is None or "model" not in module.flow.types(value):
        return False
    if any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(value)):
        return False
    source = model_origin_and_calls_passed(module, value)
    return (
        source is not None
        and isinstance(source[0].node, ast.Call)
        and module.flow.call(source[0].node).named("*.from_pretrained", "*.from_config")
    )


def _are_in_one_loop(module: Module, one: ast.AST, other: ast.AST) -> bool:
    """Does one loop run both?"""
    loops = {around for around in module.parents(one) if isinstance(around, LOOPS)}
    return any(around in loops for around in module.parents(other))


def _binding_is_trained(module: Module, read: ast.Name, binding: Binding) -> bool:
    """Does a pass of this binding's model lead to `backward`, in its loop or in the function that
    gets the model?
    """
    if binding not in module.scopes.bindings_that_reach(read):
        return False
    parent = module.scopes.parent.get(read)
    if isinstance(parent, ast.keyword):
        parent = module.scopes.parent.get(parent)
    if not isinstance(parent, ast.Call):
        return False
    if parent.func is not read:
        function = module.flow.function_that_expression_names(parent.func)
        return function is not None and any(map(is_backward_call, ast.walk(function)))
    loop = next((one for one in module.parents(parent) if isinstance(one, LOOPS)), None)
    return loop is not None and any(map(is_backward_call, ast.walk(loop)))


def _does_held_model_run_untrained(
    module: Module,
    held: tuple[Origin, frozenset[ast.Call]],
    uses: list[ModelUse],
    trained: list[ModelUse],
) -> bool:
    """Does the model whose weights an optimizer holds run, but in no pass that is trained?"""
    return any(
        model_origin_and_calls_passed(module, use.model) == held
        for use in uses
        if use not in trained
    )


def _runs_model_not_a_parameter(module: Module, use: ModelUse) -> bool:
    """Is a model run that is no parameter of the function?"""
    return _runs_model(use) and not _is_function_parameter(module, use.model)


def _run_records_graph(module: Module, use: ModelUse) -> bool:
    """Is a graph certainly recorded for a run of a model?"""
    return not use.without_gradient and may_record_gradients(module, use.call)


def _later_rebindings(
    module: Module, optimizer: Call, owner: ast.expr, trained: list[ModelUse]
) -> Iterator[ast.AST]:
    """The statements behind the optimizer that bind the name of its model to another one, in the
    same function.
    """
    if not isinstance(owner, ast.Name):
        return
    for use in trained:
        if not isinstance(use.model, ast.Name) or use.model.id != owner.id:
            continue
        bindings = module.scopes.bindings_that_reach(use.model)
        is_one_scope = module.scopes.of[use.model] is module.scopes.of[owner]
        if is_one_scope and len(bindings) == 1 and bindings[0].value is not None:
            names = {n.id for n in ast.walk(bindings[0].value) if isinstance(n, ast.Name)}
            if owner.id not in names and bindings[0].value.lineno > optimizer.node.lineno:
                yield bindings[0].value


def _runs_model(use: ModelUse) -> bool:
    """Does the call run the model, and not only move or switch it: `model.to(device)`,
    `model.train()`?
    """
    called = use.call.func
    is_switch = isinstance(called, ast.Attribute) and called.attr in MEMBERS_GIVING_THE_OBJECT - {
        "module"
    }
    return bool(use.how) or not is_switch


def _is_function_parameter(module: Module, model: ast.expr) -> bool:
    """Is it what a function was given? Then each call of the function is a use of its own."""
    if not isinstance(model, ast.Name):
        return False
    return any(binding.kind == "parameter" for binding in module.scopes.bindings_that_reach(model))
