"""Finds models that a script evaluates, or generates from, while they are in training mode, by a
symbolic run.

How it works: each generation, and each forward pass without gradients, is followed back to its
model, and the last call before it that switched the mode of this model decides. A Trainer leaves
its model in training mode, a load in evaluation mode, and a module of the project with dropout
begins in training mode.

The trade-off: a function that is not known and gets the model may switch it, so behind it nothing
is said; and a pass that runs with gradients too belongs to a training.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.half_precision_weights_updated_in_place import (
    KEEPING_METHODS,
    KEEPS_DTYPE,
)
from truetune.checks.source.evidence.model_devices_at_use import (
    LOADS,
    UNDECIDED,
    name_of_loaded_model,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.interpreter import library_bases
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Event, Frame, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Function,
    Instance,
    Library,
    Result,
    Value,
)

ON, OFF, UNKNOWN = "on", "off", "unknown"
TRAINERS = ("transformers.*Trainer", "trl.*Trainer")
MAX_HOLDERS = 3
"""Objects that hold one another on the way to a model: a project, its trainer, its model"""
MAX_COPY_STEPS = 4
"""Methods behind a copy: `.eval()`, `.to(device)`, `.requires_grad_(False)`"""
MODEL_LOADS = (*LOADS, "unsloth.*.from_pretrained")
FOR_TRAINING, FOR_INFERENCE = "unsloth.*.for_training", "unsloth.*.for_inference"
"""Unsloth's switches, which take the model as an argument"""
TRAINABLE_LOAD = "peft.PeftModel*.from_pretrained"
"""With `is_trainable=True` it leaves the adapter's dropout on, else it switches the model to eval()"""
EVALUATING_METHODS = ("evaluate", "predict")
EVALUATING_SETTINGS = (
    "eval_strategy",
    "evaluation_strategy",
    "do_eval",
    "load_best_model_at_end",
)
"""Settings by which a trainer may end in eval mode, with the evaluation of the last epoch or step"""
LIGHTNING_METHODS = ("fit", "validate", "test")
LIGHTNING_HOOKS = frozenset(
    ("on_train_epoch_end", "on_train_batch_end", "on_train_batch_start", "training_step")
)
"""Methods that Lightning calls with the module in training mode"""
NO_GRADIENT = ("torch.no_grad", "torch.inference_mode", "torch.autograd.grad_mode.*")
MODULES = ("torch.nn.Module", "torch.nn.modules.Module")
DROPOUTS = ("torch.nn.Dropout*", "torch.nn.AlphaDropout")
DROPOUT_ARGUMENT = re.compile(r"dropout|drop_prob|drop_rate|pdrop")
"""Names of arguments that set a share of dropout: `lora_dropout`, `attention_dropout`, `resid_pdrop`"""
WRAPS = ("*.FullyShardedDataParallel", "deepspeed.*", "*.fully_shard", *TRAINERS)
WITHOUT_DROPOUT = re.compile(
    r"llama|qwen|mistral|mixtral|gemma|smollm|deepseek|olmo|phi-?[34]|granite|yi-\d", re.I
)
"""Families whose published configurations have no dropout: there the mode changes no answer"""


class UseInTrainingMode(NamedTuple):
    """A model that is used for evaluation in training mode."""

    use: CallEvent
    switch: Event
    """What switched the mode on"""


Root = CallEvent | Instance
"""What a model begins with: its load, the trainer that made it, or an object of the project"""


def uses_in_training_mode(module: Module) -> Iterator[UseInTrainingMode]:
    """The evaluations and generations of a file in training mode, each place once.

    Args:
        module: A file that is judged.
    """
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for one in _training_mode_uses_of_run(
            trace, has_unsloth=module.this_or_linked_file_imports_unsloth
        ):
            if one.use.home.path == module.path and one.use.node not in seen:
                seen.add(one.use.node)
                yield one


def _training_mode_uses_of_run(trace: Trace, *, has_unsloth: bool) -> Iterator[UseInTrainingMode]:
    """The uses of one run in training mode."""
    trained = {call.node for call in _model_calls(trace) if not _is_under_no_grad(call)}
    for call in trace.all_calls:
        is_use = call.method == "generate" or _is_untrained_pass_without_gradients(call, trained)
        if not is_use or _is_deep_copied_model(call.receiver):
            continue
        for root in _origins_of_model(call.receiver):
            switch = _switch_to_training_before(trace, root, call, has_unsloth=has_unsloth)
            if switch is not None and _may_have_dropout(trace, root):
                yield UseInTrainingMode(call, switch)


def _is_untrained_pass_without_gradients(call: CallEvent, trained: set[ast.AST]) -> bool:
    """Is it a forward pass without gradients whose result is used, and which is nowhere trained on?"""
    if call.method != "__call__" or call.node in trained:
        return False
    return _is_under_no_grad(call) and not _is_forward_result_unused(call)


def _is_deep_copied_model(model: Value | None) -> bool:
    """Is it a copy of a model, `copy.deepcopy(model).eval()`, which has a mode of its own?"""
    for _ in range(MAX_COPY_STEPS):
        if not isinstance(model, Result):
            return False
        if model.call.named("copy.deepcopy"):
            return True
        model = model.call.receiver
    return False


def _model_calls(trace: Trace) -> Iterator[CallEvent]:
    """The calls of models."""
    for call in trace.all_calls:
        if call.method == "__call__" and _origins_of_model(call.receiver):
            yield call


def _origins_of_model(model: Value | None) -> list[Root]:
    """What a model begins with; [] where one way back is not known."""
    roots: list[Root] = []
    for way in lineages_back_to_origins(model) if model is not None else ():
        load = way.call_that_gave_origin
        if isinstance(way.origin, Instance) and _is_project_torch_module(way.origin):
            roots.append(way.origin)
        elif load is not None and load.named(*MODEL_LOADS, *TRAINERS):
            roots.append(load)
        else:
            return []
    return roots


def _is_project_torch_module(instance: Instance) -> bool:
    """Is it a module of torch that the project defines?"""
    return any(base in MODULES for base in library_bases(instance.made_of))


def _is_under_no_grad(call: CallEvent) -> bool:
    """Does a call stand under `torch.no_grad()`, as a block or a decorator?"""
    return any(_switches_gradients_off(frame.value) for frame in call.frames("with"))


def _is_forward_result_unused(call: CallEvent) -> bool:
    """Does nothing take what a pass gives? It warms up, or lets the shards of weights be gathered."""
    return isinstance(next(iter(call.home.parents(call.node)), None), ast.Expr)


def _switches_gradients_off(manager: Value | None) -> bool:
    """Is it a context in which no gradient is recorded?"""
    if isinstance(manager, Library):
        return manager.name in NO_GRADIENT
    if not isinstance(manager, Result):
        return False
    if manager.call.named("torch.set_grad_enabled"):
        return constant_of(manager.call.argument(0, "mode"), with_defaults=False) is False
    return manager.call.named(*NO_GRADIENT)


def _switch_to_training_before(
    trace: Trace, root: Root, use: CallEvent, *, has_unsloth: bool
) -> Event | None:
    """The last switch of a model's mode before a use, where it switched the mode on."""
    other_arms = {(id(frame.node), not frame.taken) for frame in use.frames(*UNDECIDED)}
    for call in reversed(trace.all_calls):
        if call.number >= use.number:
            continue
        if any((id(frame.node), frame.taken) in other_arms for frame in call.frames("branch")):
            continue
        mode = _mode_set_by_call(call, root, use, has_unsloth=has_unsloth)
        if mode is not None:
            return call if mode == ON else None
    return _unswitched_dropout_of_project_module(trace, root)


def _mode_set_by_call(
    call: CallEvent, root: Root, use: CallEvent, *, has_unsloth: bool
) -> str | None:
    """The mode of a model behind a call; None where the call does not touch it."""
    mode = _mode_set_by_method(call, root, use, has_unsloth=has_unsloth)
    if mode is None:
        mode = _mode_set_by_function(call, root)
    # What a context manager switches back stands in the run before the block that it surrounds.
    return UNKNOWN if mode is not None and _is_in_project_context_manager(call) else mode


def _mode_set_by_method(
    call: CallEvent, root: Root, use: CallEvent, *, has_unsloth: bool
) -> str | None:
    """The mode behind a method of the model, or of a trainer that has it."""
    if call.method == "eval" or call.method in EVALUATING_METHODS:
        return OFF if _is_or_holds_model(call.receiver, root) else None
    if call.method == "train" and _is_or_holds_model(call.receiver, root):
        return _mode_after_train(call, has_unsloth=has_unsloth)
    if call.method in LIGHTNING_METHODS and any(_is_or_holds_model(one, root) for one in call.args):
        return ON if _is_in_training_hook(use) else UNKNOWN
    return None


def _mode_after_train(call: CallEvent, *, has_unsloth: bool) -> str:
    """The mode after `model.train(...)`, or after the training by a trainer."""
    trainer = _trainer_construction_of(call.receiver)
    if trainer is None:
        return _mode_of_train_call(call)
    return UNKNOWN if has_unsloth or _trainer_may_end_in_eval_mode(trainer) else ON


def _mode_of_train_call(call: CallEvent) -> str:
    """The mode that `train()` or `train(flag)` gives."""
    mode_argument = call.argument(0, "mode")
    if mode_argument is None:
        return UNKNOWN if call.is_open else ON
    plain = constant_of(mode_argument, with_defaults=False)
    return {True: ON, False: OFF}.get(plain, UNKNOWN) if isinstance(plain, bool) else UNKNOWN


def _mode_set_by_function(call: CallEvent, root: Root) -> str | None:
    """The mode behind a function that is given the model."""
    arguments = (*call.args, *call.keywords.values())
    if call is root or not any(_is_or_holds_model(one, root) for one in arguments):
        return None
    if call.named(FOR_TRAINING):
        return ON
    if call.named(FOR_INFERENCE):
        return OFF
    if call.named(TRAINABLE_LOAD):
        return ON if constant_of(call.keywords.get("is_trainable")) is True else OFF
    is_harmless = call.named(*KEEPS_DTYPE, *WRAPS, "unsloth.*", "peft.*", "accelerate.*")
    if is_harmless or call.method in (*KEEPING_METHODS, "unwrap_model", "generate"):
        return None
    return UNKNOWN


def _is_or_holds_model(value: Value | None, root: Root, depth: int = 0) -> bool:
    """Is it the model that begins there, or an object, list or trainer that holds it?"""
    if value is None or depth > MAX_HOLDERS:
        return False
    if isinstance(value, Instance):
        return _object_holds_model(value, root, depth)
    return any(
        way.call_that_gave_origin is root
        or way.origin is root
        or (way.origin is not value and _is_project_object_with_model(way.origin, root, depth))
        or _is_trainer_given_model(way.call_that_gave_origin, root, depth)
        for way in lineages_back_to_origins(value)
    )


def _object_holds_model(holder: Instance, root: Root, depth: int) -> bool:
    """Is an object of the project the model's, or a trainer of it, or has it one that is?"""
    if holder is root:
        return True
    trainer = holder.construction
    if trainer is not None and trainer.named(*TRAINERS):
        return trainer is root or _is_trainer_given_model(trainer, root, depth)
    parts = holder.attributes.values()
    return any(
        _is_or_holds_model(one, root, depth + 1)
        for one in parts
        if isinstance(one, Result | Instance)
    )


def _is_project_object_with_model(origin: Value | None, root: Root, depth: int) -> bool:
    """Is it an object of the project that holds the model?"""
    return isinstance(origin, Instance) and _is_or_holds_model(origin, root, depth + 1)


def _is_trainer_given_model(call_event: CallEvent | None, root: Root, depth: int) -> bool:
    """Is it the construction of a trainer that is given the model?"""
    if call_event is None or not call_event.named(*TRAINERS):
        return False
    return _is_or_holds_model(call_event.argument(0, "model"), root, depth + 1)


def _trainer_construction_of(value: Value | None) -> CallEvent | None:
    """The construction of the trainer that a value is; None where it is none."""
    made: CallEvent | None = None
    if isinstance(value, Instance):
        made = value.construction
    elif isinstance(value, Result):
        made = value.call
    return made if made is not None and made.named(*TRAINERS) else None


def _trainer_may_end_in_eval_mode(trainer: CallEvent) -> bool:
    """May a trainer end with an evaluation, or are its settings not seen?"""
    args = trainer.argument(1, "args")
    if args is None:
        return trainer.is_open
    if not isinstance(args, Result) or args.call.is_open:
        return True
    given = (args.call.keywords.get(name) for name in EVALUATING_SETTINGS)
    return any(one is not None and constant_of(one) not in ("no", False) for one in given)


def _is_in_training_hook(use: CallEvent) -> bool:
    """Does a use stand in a method that Lightning calls while it trains?"""
    return any(
        isinstance(frame.value, Function) and frame.value.name in LIGHTNING_HOOKS
        for frame in use.frames("call")
    )


def _is_in_project_context_manager(call: CallEvent) -> bool:
    """Does a call stand in a context manager of the project?"""
    return any(_is_context_manager(frame) for frame in call.frames("call"))


def _is_context_manager(frame: Frame) -> bool:
    """Is it a call of a function under `contextlib.contextmanager`?"""
    if not isinstance(frame.value, Function):
        return False
    decorators = frame.value.decorators
    return any(
        isinstance(one, Library) and one.name.endswith("contextmanager") for one in decorators
    )


def _unswitched_dropout_of_project_module(trace: Trace, root: Root) -> Event | None:
    """The dropout of a module of the project that nobody switched, which begins in training mode."""
    holders = [
        one
        for one in trace.instances
        if _is_project_torch_module(one) and _is_or_holds_model(one, root)
    ]
    for holder in holders:
        for part in holder.attributes.values():
            if isinstance(part, Result) and part.call.named(*DROPOUTS):
                if constant_of(part.call.argument(0, "p")) != 0:
                    return part.call
    return None


def _may_have_dropout(trace: Trace, root: Root) -> bool:
    """May training mode change what the model answers?"""
    for call in trace.all_calls:
        rates = (one for name, one in call.keywords.items() if DROPOUT_ARGUMENT.search(name))
        if any(constant_of(rate) not in (0, 0.0) for rate in rates):
            return True
        # The dropout of an adapter that is loaded stands in its folder.
        if call.named(*DROPOUTS, TRAINABLE_LOAD) or call.method == "load_adapter":
            return True
    return not isinstance(root, Instance) and _family_may_have_dropout(root)


def _family_may_have_dropout(root: CallEvent) -> bool:
    """Is a model of a family with dropout, or of one that is not known?"""
    name: object = name_of_loaded_model(root)
    if root.named(*TRAINERS):
        model = root.argument(0, "model")
        name = constant_of(model)
        inner = [one for one in _origins_of_model(model) if isinstance(one, CallEvent)]
        if inner:
            return any(_family_may_have_dropout(one) for one in inner if one is not root)
    return not isinstance(name, str) or WITHOUT_DROPOUT.search(name) is None
