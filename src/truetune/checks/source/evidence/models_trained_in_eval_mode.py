"""Finds models that are trained in evaluation mode from some step on, in the symbolic run of a
script.

How it works: each pass of a loop is run twice, so what the end of the first one leaves behind is
what the second one meets. Of all switches of a model's mode (`train`, `eval`, Unsloth's
`for_training` and `for_inference`) the last one before a backward pass counts, wherever it stands:
in the loop, a function, a class, another file.

The trade-off: a switch that a test may pass over counts as made when it goes back to training, and
the arms of one test that switch either way leave the mode open.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from truetune.checks.source.evidence.optimizers_before_adapters import (
    NO_OPTIMIZERS,
    OPTIMIZER_CLASSES,
    models_of_parameters,
)
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import Lineage, lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Frame, Trace
from truetune.source.symbolic_execution.values_of_run import (
    Class,
    Instance,
    Library,
    Parameter,
    Unknown,
    Value,
)

FOR_TRAINING, FOR_INFERENCE = "unsloth.*.for_training", "unsloth.*.for_inference"
OTHER_OPTIMIZERS = ("*.AdamW*", "*.Adam", "*.SGD", "*.Lion", "*.Adafactor", "deepspeed.initialize")
LIGHTNING = ("*lightning*.LightningModule", "*lightning*.Callback")
HOOKS_OF_TRAINING = frozenset(
    ("training_step", "on_train_batch_start", "on_train_batch_end", "on_train_epoch_end")
)
"""Methods that Lightning calls between steps, and behind which it leaves each mode as it is"""
LEAVES_LOOP = (ast.Break, ast.Return, ast.Raise)
ENDINGS = frozenset(("exit", "quit", "_exit"))


class LeftInEvalMode(NamedTuple):
    """A model that is trained in evaluation mode from some step on."""

    switch: CallEvent
    """What put it into that mode"""
    backward: CallEvent | None
    """The pass that meets it so; None in Lightning, which makes it itself"""
    trace: Trace


def models_left_in_eval_mode(module: Module) -> Iterator[LeftInEvalMode]:
    """The switches of a file to evaluation mode that a later training step still meets, each place
    once.
    """
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for found in (
            *_left_in_eval_mode_by_own_loops(trace),
            *_left_in_eval_mode_by_lightning_hooks(trace),
        ):
            if found.switch.home.path == module.path and found.switch.node not in seen:
                seen.add(found.switch.node)
                yield found


def training_mode_set_by(call: CallEvent) -> bool | None:
    """True where a call switches a model to training, False to evaluation; None where it switches
    nothing.
    """
    if call.named(FOR_TRAINING):
        return True
    if call.named(FOR_INFERENCE):
        return False
    if call.method == "eval" and not call.args:
        return False
    if call.method != "train":
        return None
    given = call.argument(0, "mode")
    # A mode that only the run knows is one that was kept: `model.train(was_training)`.
    return given is None or constant_of(given) is not False


def _left_in_eval_mode_by_own_loops(trace: Trace) -> Iterator[LeftInEvalMode]:
    """The switches to evaluation mode that a later `backward` of a hand-written loop still meets."""
    trained = _models_held_by_optimizers(trace)
    if not trained:
        return
    switches = _mode_switches(trace)
    for backward in trace.all_calls:
        if backward.method != "backward" or not backward.is_in_later_loop_pass:
            continue
        before = [one for one in switches if one.number < backward.number]
        for model in trained:
            switch = _last_mode_switch_of_model(before, model.origin)
            if switch is None or _model_was_reloaded_before(trace, model, backward):
                continue
            if _stays_in_eval_mode(switch, backward, before):
                yield LeftInEvalMode(switch, backward, trace)


def _mode_switches(trace: Trace) -> list[CallEvent]:
    """The calls of a run that switch a model to training or to evaluation mode, in their order."""
    return [call for call in trace.all_calls if training_mode_set_by(call) is not None]


def _stays_in_eval_mode(switch: CallEvent, backward: CallEvent, before: list[CallEvent]) -> bool:
    """Is a model that was switched last by this call in the mode of an evaluation at the backward
    pass?
    """
    if training_mode_set_by(switch) is True or not _next_pass_meets_switch(switch, backward):
        return False
    return not _other_branch_switches_to_training(switch, before)


def _model_was_reloaded_before(trace: Trace, model: Lineage, before: CallEvent) -> bool:
    """Did a later pass of a loop, of folds or of seeds, load another model in its place before a
    call?
    """
    load = model.call_that_gave_origin
    if load is None:
        return False
    return any(
        one.node is load.node
        and one.is_in_later_loop_pass
        and load.number < one.number < before.number
        for one in trace.all_calls
    )


def _models_held_by_optimizers(trace: Trace) -> list[Lineage]:
    """The models whose parameters an optimizer of the run holds, each once."""
    trained: dict[int, Lineage] = {}
    for call in trace.calls(*OPTIMIZER_CLASSES, *OTHER_OPTIMIZERS):
        if call.named(*NO_OPTIMIZERS):
            continue
        given = call.argument(0, "params") or call.keywords.get("model_parameters")
        given = call.argument(0, "model") if call.named("deepspeed.initialize") else given
        if given is None:
            continue
        models = [given] if call.named("deepspeed.initialize") else models_of_parameters(given)
        for model in models or ():
            for way in lineages_back_to_origins(model):
                trained[id(way.origin)] = way
    return list(trained.values())


def _last_mode_switch_of_model(before: list[CallEvent], model: Value) -> CallEvent | None:
    """The last of these switches that is of a model, or may be."""
    for switch in reversed(before):
        switched = _switched_model(switch)
        if switched is None:
            continue
        origins = [way.origin for way in lineages_back_to_origins(switched)]
        if any(origin is model for origin in origins):
            return switch
        # What is not known may be the same model; a switch to training then silences.
        if training_mode_set_by(switch) and all(
            isinstance(one, Unknown | Parameter) for one in origins
        ):
            return switch
    return None


def _switched_model(switch: CallEvent) -> Value | None:
    """The model of a switch."""
    return switch.argument(0, "model") if switch.method is None else switch.receiver


def _next_pass_meets_switch(switch: CallEvent, backward: CallEvent) -> bool:
    """Do both stand in one loop, which continues behind the switch?"""
    loops = {id(frame.node) for frame in backward.frames("loop")}
    inner: list[Frame] = []
    for frame in switch.frames():
        if frame.kind == "loop" and id(frame.node) in loops:
            return not any(_branch_leaves_loop(one) for one in inner)
        inner.append(frame)
    return False


def _branch_leaves_loop(frame: Frame) -> bool:
    """Does an arm of a test leave the loop in its last statement?"""
    if frame.kind != "branch" or not isinstance(frame.node, ast.If):
        return False
    body = frame.node.body if frame.taken else frame.node.orelse
    last = body[-1] if body else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return ast.unparse(last.value.func).rpartition(".")[2] in ENDINGS
    return isinstance(last, LEAVES_LOOP)


def _other_branch_switches_to_training(switch: CallEvent, before: list[CallEvent]) -> bool:
    """Does the other arm of a test around a switch go back to training, so that only the run knows
    the mode?
    """
    arms = {(id(frame.node), frame.taken) for frame in switch.frames("branch")}
    others = [one for one in before if training_mode_set_by(one)]
    return any(
        (id(frame.node), not frame.taken) in arms
        for other in others
        for frame in other.frames("branch")
    )


def _left_in_eval_mode_by_lightning_hooks(trace: Trace) -> Iterator[LeftInEvalMode]:
    """Methods that Lightning calls between steps of the training, where nothing of the run switches
    back.
    """
    switches = [call for call in trace.all_calls if training_mode_set_by(call) is not None]
    if any(training_mode_set_by(one) for one in switches):
        return
    for switch in switches:
        if any(
            _is_lightning_hook_between_steps(frame) for frame in switch.frames("call", "callback")
        ):
            if not switch.is_in_later_loop_pass and _is_model_of_lightning_hook(switch):
                yield LeftInEvalMode(switch, None, trace)


def _is_model_of_lightning_hook(switch: CallEvent) -> bool:
    """Is it the module itself, what it keeps as `model`, or the module that Lightning hands to a
    callback?
    """
    receiver = switch.receiver
    while receiver is not None and getattr(receiver, "name", "") in ("model", "net", "llm"):
        inner = getattr(receiver, "base", None)
        if inner is None:
            break
        receiver = inner
    if isinstance(receiver, Instance):
        return True
    if isinstance(receiver, Parameter):
        return receiver.name in ("pl_module", "model", "self")
    held = lineages_back_to_origins(receiver) if receiver is not None else []
    return (
        len(held) == 1
        and held[0].call_that_gave_origin is not None
        and held[0].call_that_gave_origin.named("*.from_pretrained")
    )


def _is_lightning_hook_between_steps(frame: Frame) -> bool:
    """Is a frame a method of Lightning's that runs between steps?"""
    function = frame.value
    owner = getattr(function, "owner", None)
    if getattr(function, "name", "") not in HOOKS_OF_TRAINING or not isinstance(owner, Class):
        return False
    return any(_is_lightning_class(base) for base in owner.bases)


def _is_lightning_class(base: Value) -> bool:
    """Is it Lightning's module or callback, or a class of the project that is made of one?"""
    if isinstance(base, Class):
        return any(_is_lightning_class(one) for one in base.bases)
    return (
        isinstance(base, Library)
        and base.name.rpartition(".")[2]
        in (
            "LightningModule",
            "Callback",
        )
        and "lightning" in base.name
    )


def features_disabled_by_eval_mode(trace: Trace) -> tuple[str, ...]:
    """What evaluation mode switches off in this run, as far as the script says."""
    off: list[str] = []
    rates = [
        constant_of(call.keywords["lora_dropout"])
        for call in trace.all_calls
        if "lora_dropout" in call.keywords
    ]
    known = [rate for rate in rates if isinstance(rate, int | float) and rate > 0]
    if known:
        off.append(f"lora_dropout={known[0]:g}")
    if _checkpointing_is_on(trace):
        off.append("gradient checkpointing")
    return tuple(off)


def _checkpointing_is_on(trace: Trace) -> bool:
    """Is gradient checkpointing switched on?"""
    if any(trace.methods("gradient_checkpointing_enable")):
        return True
    return any(
        constant_of(call.keywords[name]) in (True, "unsloth")
        for call in trace.all_calls
        for name in ("gradient_checkpointing", "use_gradient_checkpointing")
        if name in call.keywords
    )
