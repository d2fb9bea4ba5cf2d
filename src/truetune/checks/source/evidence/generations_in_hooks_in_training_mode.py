"""Finds calls of `generate` in hooks that a trainer runs while the model is in training mode.

How it works: from the hooks of a callback, a LightningModule or a trainer of the project through
the methods and functions that they call. Hooks of an evaluation are no part of it. Whatever ends
the training mode on one of these ways, or in the constructor, silences the class.

The trade-off: a LightningModule keeps a model of transformers in eval mode since Lightning 2.2, so
that its hooks count only where the project calls `train()` itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from truetune.source.call_with_resolved_names_and_arguments import last_name_of_called
from truetune.source.parsed_source_file import Module

TRAINER_HOOKS = frozenset(
    (
        "on_step_begin",
        "on_step_end",
        "on_substep_end",
        "on_epoch_begin",
        "on_epoch_end",
        "on_log",
        "on_save",
    )
)
"""Methods of callbacks that transformers calls with the model in training mode"""
LIGHTNING_HOOKS = frozenset(
    (
        "training_step",
        "on_train_batch_start",
        "on_train_batch_end",
        "on_train_epoch_start",
        "on_train_epoch_end",
        "on_before_zero_grad",
        "on_after_backward",
        "on_before_optimizer_step",
    )
)
"""Methods that Lightning calls with the module in training mode; those of the validation are in eval mode"""
STEP_OF_A_TRAINER = frozenset(("training_step",))
LIGHTNING = ("lightning", "pytorch_lightning")
ENGINES = ("vllm.LLM", "sglang.Engine", "transformers.pipeline", "*.from_pretrained")
"""What makes a model of its own, beside the one that is trained"""
MAX_METHODS = 12
"""Methods and functions that are followed from a hook. Chosen: a hook, its helper, a batch, a decoder"""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def generations_in_training_hooks(module: Module, ending: Sequence[str]) -> Iterator[ast.Call]:
    """The first `generate` of each class of a file whose hooks run in training mode, and end it
    nowhere.

    Args:
        module: A file that is judged.
        ending: names of methods and functions that end the training mode, or its effect.
    """
    for owner in module.nodes(ast.ClassDef):
        hooks = _training_mode_hooks_of(module, owner)
        methods = {one.name: one for one in owner.body if isinstance(one, Function)}
        started = [method for name, method in methods.items() if name in hooks]
        calls = list(_calls_reached_from(module, started, methods))
        generation = next((one for one in calls if _generates_by_trained_model(module, one)), None)
        if generation is None:
            continue
        made = _calls_reached_from(module, _constructors_of(methods), methods)
        if {last_name_of_called(one) for one in (*calls, *made)}.isdisjoint(ending):
            yield generation


def _constructors_of(methods: dict[str, Function]) -> list[Function]:
    """The methods of a class that run when an object is made."""
    return [methods[name] for name in ("__init__", "__post_init__") if name in methods]


def _generates_by_trained_model(module: Module, call: ast.Call) -> bool:
    """Is it a `generate` of the model that is trained, and not of one that the class loads itself?"""
    return last_name_of_called(call) == "generate" and not _class_generates_by_own_loaded_model(
        module, call
    )


def _training_mode_hooks_of(module: Module, owner: ast.ClassDef) -> frozenset[str]:
    """The names of the methods that a trainer calls in training mode; none for a class that is no
    part of one.
    """
    written = [ast.unparse(base) for base in owner.bases]
    if any(base.endswith("TrainerCallback") for base in written):
        return TRAINER_HOOKS
    bases = (*module.flow.bases(owner), *written)
    is_of_lightning = any(base.startswith(LIGHTNING) for base in bases) or (
        module.mentions("LightningModule")
        and any(base.endswith((".Callback", "LightningModule")) for base in bases)
    )
    if is_of_lightning:
        return LIGHTNING_HOOKS if _project_switches_to_training(module) else frozenset()
    is_trainer = any(base.rpartition(".")[2].endswith("Trainer") for base in written)
    return STEP_OF_A_TRAINER if is_trainer else frozenset()


def _project_switches_to_training(module: Module) -> bool:
    """Does the project put a model into training mode itself?"""
    return any(
        not call.args and not call.keywords
        for part in module.self_and_files_run_together
        for call in part.methods("train")
    )


def _calls_reached_from(
    module: Module, started: Sequence[Function], methods: dict[str, Function]
) -> Iterator[ast.Call]:
    """The calls in some methods, and in the methods of the class and functions of the project that
    they call.
    """
    waiting = list(started)
    seen: set[ast.AST] = set()
    while waiting and len(seen) < MAX_METHODS:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            yield call
            called = _method_called(call, methods) or module.flow.function_that_expression_names(
                call.func
            )
            if isinstance(called, Function):
                waiting.append(called)


def _method_called(call: ast.Call, methods: dict[str, Function]) -> Function | None:
    """The method of the same object that a call runs."""
    function = call.func
    is_own = (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "self"
    )
    return methods.get(function.attr) if is_own and isinstance(function, ast.Attribute) else None


def _class_generates_by_own_loaded_model(module: Module, call: ast.Call) -> bool:
    """Does a class generate by a model that it loads for itself: an engine, a judge, a reference?"""
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    made = module.flow.producing_call(receiver)
    if made is None or not made.named(*ENGINES):
        return False
    owner = next((one for one in module.parents(call) if isinstance(one, ast.ClassDef)), None)
    return owner is not None and owner in module.parents(made.node)
