"""Finds loops of a cross-validation that train one model in all folds: it has been trained on the rows
that the later folds hold out.

How it works: a loop runs over the splits of scikit-learn's divisions, or over numbers that say
which rows are held out (`i % k == fold`, `rows.shard(k, fold)`). The model that is trained in its
body was made before the loop, and nothing in the body, or in the functions that it is given to,
makes, copies or loads weights.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.backward_and_optimizer_step_calls import is_backward_call
from truetune.checks.source.evidence.nodes_that_an_expression_is_computed_from import (
    may_record_gradients,
)
from truetune.source.parsed_source_file import Module

DIVISIONS = ("KFold", "Fold", "Split", "LeaveOneOut", "LeavePOut", "LeaveOneGroupOut")
"""Ends of the names of scikit-learn's divisions of rows into folds"""
GROWING = "TimeSeriesSplit"
"""A division whose later folds hold out later rows, which no fold before has trained on"""
NEW_WEIGHTS = frozenset(
    (
        "from_pretrained",
        "from_config",
        "load_state_dict",
        "deepcopy",
        "clone",
        "apply",
        "get_peft_model",
        "load_adapter",
        "add_adapter",
        "set_peft_model_state_dict",
        "reset_parameters",
        "init_weights",
        "load_model",
        "copy_",
    )
)
"""Functions after which a model may have other weights"""
WRAPPERS = ("enumerate", "list", "tqdm", "tuple")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class ModelTrainedInEachFold(NamedTuple):
    """A model that all folds of a cross-validation train."""

    name: str
    loop: ast.For
    training: ast.AST
    """What trains it in the loop"""
    made: ast.AST
    """What made it before the loop"""


def fold_loops(module: Module) -> Iterator[ast.For]:
    """The loops over the folds of a cross-validation."""
    for loop in module.nodes(ast.For):
        if _is_iterable_of_kfold_splits(module, loop.iter) or _loop_number_chooses_held_out_rows(
            loop
        ):
            yield loop


def models_trained_in_each_fold(module: Module) -> Iterator[ModelTrainedInEachFold]:
    """The models that a loop over folds trains, and that were made before it."""
    for loop in fold_loops(module):
        if _loop_may_end_early_or_skip_folds(loop) or _makes_or_loads_model_weights(
            module, loop.body
        ):
            continue
        stored = {
            node.id
            for node in ast.walk(loop)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        for training, model in _trained_models(module, loop):
            call = module.flow.producing_call(model)
            if model.id in stored or call is None or "model" not in module.flow.types(model):
                continue
            if loop not in module.parents(call.node):
                yield ModelTrainedInEachFold(model.id, loop, training, call.node)
                break


def _is_iterable_of_kfold_splits(module: Module, iterable: ast.expr) -> bool:
    """Is it `KFold(...).split(rows)`, under a name, or counted?"""
    if isinstance(iterable, ast.Call) and iterable.args:
        if ast.unparse(iterable.func).rpartition(".")[2] in (*WRAPPERS, "zip"):
            return any(_is_iterable_of_kfold_splits(module, one) for one in iterable.args)
    call = module.flow.producing_call(iterable)
    if call is None:
        return False
    if call.method != "split":
        is_other = call.node is not iterable and bool(call.node.args)
        return is_other and _is_iterable_of_kfold_splits(module, call.node)
    division = module.flow.producing_call(call.receiver)
    return division is not None and any(map(_is_division_into_folds, division.names))


def _is_division_into_folds(name: str) -> bool:
    """Is it a division of scikit-learn that holds out each row in one of its folds?"""
    is_division = name.startswith("sklearn.") and name.endswith(DIVISIONS)
    return is_division and not name.endswith(GROWING)


def _loop_number_chooses_held_out_rows(loop: ast.For) -> bool:
    """Does the loop's number say which rows are held out, and which are trained?"""
    if not isinstance(loop.target, ast.Name):
        return False
    compared = set()
    for node in ast.walk(loop):
        if isinstance(node, ast.Compare) and _compares_remainder_with(node, loop.target.id):
            compared.add(type(node.ops[0]))
    return {ast.Eq, ast.NotEq} <= compared


def _compares_remainder_with(node: ast.Compare, fold: str) -> bool:
    """Is it `i % k == fold`?"""
    other = node.comparators[0]
    is_remainder = isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Mod)
    return is_remainder and isinstance(other, ast.Name) and other.id == fold


def _loop_may_end_early_or_skip_folds(loop: ast.For) -> bool:
    """Does the loop itself end early, or leave folds out, so that it may train one fold only?"""
    waiting: list[ast.AST] = list(loop.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Break, ast.Continue, ast.Return)):
            return True
        if not isinstance(node, (ast.For, ast.While, *FUNCTIONS)):
            waiting += ast.iter_child_nodes(node)
    return False


def _makes_or_loads_model_weights(module: Module, body: list[ast.stmt]) -> bool:
    """Does the body, or a function of the file that it calls, make, copy or load weights?"""
    waiting: list[ast.AST] = list(body)
    seen: set[ast.AST] = set()
    while waiting:
        for node in ast.walk(waiting.pop()):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in NEW_WEIGHTS or "reset" in name.lower():
                return True
            function = _function_named(module, name)
            if function is not None and function not in seen:
                seen.add(function)
                waiting.append(function)
    return False


def _trained_models(module: Module, loop: ast.For) -> Iterator[tuple[ast.AST, ast.Name]]:
    """The names of models that are trained in a loop, each with what trains it."""
    has_backward = any(map(is_backward_call, ast.walk(loop)))
    for node in ast.walk(loop):
        if not isinstance(node, ast.Call):
            continue
        candidates = [
            *_model_given_to_trainer(module, node),
            *_models_given_to_training_function(module, node),
        ]
        if has_backward and _is_model(module, node.func) and not _is_detached(module, node):
            # A frozen encoder is called without gradients, and each fold trains a new head on it.
            candidates += [node.func] if may_record_gradients(module, node) else []
        for model in candidates:
            if isinstance(model, ast.Name):
                yield node, model


def _is_detached(module: Module, call: ast.Call) -> bool:
    """Is the result of a model detached at once: `model(**batch).logits.detach()`?"""
    return any(
        isinstance(parent, ast.Attribute) and parent.attr == "detach"
        for parent in module.parents(call)
    )


def _model_given_to_trainer(module: Module, node: ast.Call) -> list[ast.expr]:
    """The model that a trainer is made with; empty where the call makes no trainer."""
    call = module.flow.call(node)
    model_argument = call.argument(0, "model")
    is_trainer = any(name.endswith("Trainer") for name in call.names)
    return [model_argument] if is_trainer and model_argument is not None else []


def _models_given_to_training_function(module: Module, node: ast.Call) -> list[ast.expr]:
    """The models that a function of the file is given, where it trains; empty for other calls."""
    function = _function_named(module, ast.unparse(node.func))
    if function is None or not _trains(function):
        return []
    arguments = (*node.args, *module.flow.call(node).keywords.values())
    return [one for one in arguments if _is_model(module, one)]


def _is_model(module: Module, node: ast.expr) -> bool:
    """Is it the name of a model?"""
    return isinstance(node, ast.Name) and "model" in module.flow.types(node)


def _function_named(module: Module, name: str) -> ast.FunctionDef | None:
    """The function of the file that has a name; None where there is none."""
    return next((one for one in module.nodes(ast.FunctionDef) if one.name == name), None)


def _trains(function: ast.FunctionDef) -> bool:
    """Does a function train: by a trainer, or by gradients of its own?"""
    for node in ast.walk(function):
        if is_backward_call(node):
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Trainer"):
            return True
    return False
