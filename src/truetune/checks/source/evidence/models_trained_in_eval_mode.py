"""Finds models that are trained in evaluation mode from some step on, in the symbolic run of a
script.

How it works: each pass of a loop is run twice, so what the end of the first one leaves behind is
what the second one meets. Of all switches of a model's mode (`train`, `eval`, Unsloth's
`for_training` and `for_inference`) the last one before a backward pass counts, wherever it stands:
in the loop, a function, a class, another file.

A model that transformers loads is in evaluation mode too. Trainers switch it; own loops do not, nor does Lightning from
2.2 on. Such a model counts where nothing in the script switches anything to training, nothing is frozen, and
the script or the model's family says that there is a dropout (the decoders of today have none) or checkpointing is on.

The trade-off: a switch that a test may pass over counts as made when it goes back to training, and
the arms of one test that switch either way leave the mode open.
"""

from __future__ import annotations

import ast
import re
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
    NO_CONSTANT,
    Class,
    Instance,
    Library,
    Option,
    Parameter,
    Result,
    Unknown,
    Value,
    options_of_choice,
)

FOR_TRAINING, FOR_INFERENCE = "unsloth.*.for_training", "unsloth.*.for_inference"
OTHER_OPTIMIZERS = ("*.AdamW*", "*.Adam", "*.SGD", "*.Lion", "*.Adafactor", "deepspeed.initialize")
LIGHTNING = ("*lightning*.LightningModule", "*lightning*.Callback")
HOOKS_OF_TRAINING = frozenset(
    ("training_step", "on_train_batch_start", "on_train_batch_end", "on_train_epoch_end")
)
"""Methods that Lightning calls between steps, and behind which it leaves each mode as it is"""
MODEL_LOADS = re.compile(r"transformers\.(?:.+\.)?\w*(?:Model|For[A-Z]\w+)\.from_pretrained")
FAMILIES_WITH_DROPOUT = re.compile(
    r"(?<!modern)bert|electra|mpnet|xlnet|longformer|\bbart|pegasus|opus-mt|\bt5\b|\bgpt2|\bopt-",
    re.I,
)
"""In names of models whose config.json has a dropout of 0.1, the default of their classes in transformers; ModernBERT,
Llama, Qwen, Mistral and Gemma have none"""
ADAPTERS = ("peft.*", "unsloth.*")
"""Adapters have a dropout of their own, which is in training mode when it is made"""
FREEZES = ("requires_grad", "freeze(")
"""What a script says that keeps a part as it was loaded: then its evaluation mode may be meant"""
USES_FROZEN = ("no_grad", "inference_mode")
"""What a LightningModule puts around a frozen part; its validation needs none"""
LAST_THAT_SWITCHED, FIRST_THAT_DOES_NOT = "2.1.4", "2.2.0"
"""Releases of Lightning: until the first, `fit` put all submodules into training mode (Lightning#18951)"""
MAX_PARTS = 4
"""Attributes that lie in one another: an encoder in a network in a LightningModule"""
LEAVES_LOOP = (ast.Break, ast.Return, ast.Raise)
ENDINGS = frozenset(("exit", "quit", "_exit"))


class LeftInEvalMode(NamedTuple):
    """A model that is trained in evaluation mode from some step on."""

    switch: CallEvent
    """What put it into that mode"""
    backward: CallEvent | None
    """The pass that meets it so; None in Lightning, which makes it itself"""
    trace: Trace


class LoadedInEvalMode(NamedTuple):
    """A model that is trained in the evaluation mode in which it was loaded."""

    load: CallEvent
    is_in_lightning: bool
    switched_off: tuple[str, ...]
    """What that mode switches off: `hidden_dropout_prob=0.2`"""


def models_trained_as_loaded(module: Module) -> Iterator[LoadedInEvalMode]:
    """The loads in a file of models that are trained, while nothing switches them to training."""
    if module.mentions(*FREEZES):
        return
    seen: set[ast.AST] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        if any(training_mode_set_by(one) for one in trace.all_calls):
            continue
        loads = [(load, True) for load in _loads_in_fitted_lightning_modules(trace)]
        loads += [(load, False) for load in _loads_trained_by_own_loops(trace)]
        for load, is_in_lightning in loads:
            off = _features_of_load_off_in_eval_mode(trace, load, is_in_lightning=is_in_lightning)
            if off and load.home.path == module.path and load.node not in seen:
                seen.add(load.node)
                yield LoadedInEvalMode(load, is_in_lightning, off)


def _loads_in_fitted_lightning_modules(trace: Trace) -> Iterator[CallEvent]:
    """The loads of models that a LightningModule keeps, where Lightning's `fit` leaves their mode as it is."""
    if _release_of_lightning_switches(trace.entry) or trace.entry.mentions(*USES_FROZEN):
        return
    for fit in trace.methods("fit"):
        fitted = fit.argument(0, "model")
        for one in options_of_choice(fitted) if fitted is not None else ():
            if isinstance(one, Instance) and any(map(_is_lightning_class, one.made_of.bases)):
                yield from _loads_kept_by(one, 0)


def _release_of_lightning_switches(module: Module) -> bool:
    """Does the project ask for a release of Lightning that switches all submodules itself?"""
    pin = module.pins.of("lightning")
    if pin is None:
        return False
    return pin.compare_with_removal_window(LAST_THAT_SWITCHED, FIRST_THAT_DOES_NOT) == "older"


def _loads_trained_by_own_loops(trace: Trace) -> Iterator[CallEvent]:
    """The loads of models, and of parts of own networks, that an optimizer of a loop with `backward` holds."""
    is_of_library = any(call.named("deepspeed.initialize") for call in trace.all_calls)
    if is_of_library or not any(trace.methods("backward")):
        return
    for way in _models_held_by_optimizers(trace):
        if way.has_step(*ADAPTERS):
            continue
        load = way.call_that_gave_origin
        if isinstance(way.origin, Instance):
            if not any(map(_is_lightning_class, way.origin.made_of.bases)):
                yield from _loads_kept_by(way.origin, 0)
        elif load is not None and _is_load_of_transformers(load):
            yield load


def _loads_kept_by(owner: Instance, depth: int) -> Iterator[CallEvent]:
    """The loads of the models that an object of the project keeps in its attributes, or in those of its parts."""
    for value in owner.attributes.values() if depth < MAX_PARTS else ():
        for one in options_of_choice(value):
            if isinstance(one, Instance):
                yield from _loads_kept_by(one, depth + 1)
        for way in lineages_back_to_origins(value):
            load = way.call_that_gave_origin
            is_whole = isinstance(way.origin, Result)
            if load is not None and is_whole and not way.has_step(*ADAPTERS):
                if _is_load_of_transformers(load):
                    yield load


def _is_load_of_transformers(load: CallEvent) -> bool:
    """Does a call load a model of transformers, which puts it into evaluation mode?"""
    return any(MODEL_LOADS.fullmatch(name) for name in load.names)


def _features_of_load_off_in_eval_mode(
    trace: Trace, load: CallEvent, *, is_in_lightning: bool
) -> tuple[str, ...]:
    """What evaluation mode switches off in a model that is loaded so; empty where nothing is known of it."""
    for call in (
        load,
        *trace.calls("transformers.*Config.from_pretrained", "transformers.*Config"),
    ):
        rates = {
            name: constant_of(value) for name, value in call.keywords.items() if "dropout" in name
        }
        for name, rate in rates.items():
            if rate is NO_CONSTANT:
                return (f"the dropout that {name} sets",)
            if isinstance(rate, int | float) and rate > 0:
                return (f"{name}={rate:g}",)
        if rates:
            return ()
    # In a loop of its own that alone is `checkpointing-without-training-mode`.
    if is_in_lightning and _checkpointing_is_on(trace):
        return ("gradient checkpointing",)
    name = _text_of_value(load.argument(0, "pretrained_model_name_or_path"))
    return ("the dropout of its config.json (0.1)",) if FAMILIES_WITH_DROPOUT.search(name) else ()


def _text_of_value(value: Value | None) -> str:
    """The text that a value is, an option's by its default; empty where it is none."""
    if isinstance(value, Option):
        value = value.default
    text = constant_of(value)
    return text if isinstance(text, str) else ""


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
    mode_argument = call.argument(0, "mode")
    # A mode that only the run knows is one that was kept: `model.train(was_training)`.
    return mode_argument is None or constant_of(mode_argument) is not False


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
