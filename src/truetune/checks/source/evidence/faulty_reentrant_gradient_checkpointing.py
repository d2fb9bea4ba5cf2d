"""Finds reentrant gradient checkpointing where it loses the gradients, or where DDP refuses it.

How it works: a reentrant checkpoint gives gradients to what it computes only where one of its
inputs requires them. Over a frozen embedding none does, so that every weight inside of the layers
stays as it was. What freezes the whole model comes from the symbolic run of the script, as the
order of adapter and checkpointing does; checkpoints of one's own are read in the text, since they
often stand in a `forward` that a run never reaches.

The trade-off: whatever may give gradients to the embedding's output, in any file of the run, ends
the search: hooks, `requires_grad_()`, prompts that are trained, an adapter on the embedding, TRL's
trainers (which enable it themselves).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal, NamedTuple

from truetune.source.call_with_resolved_names_and_arguments import Call
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import (
    CallEvent,
    Event,
    StoreEvent,
    Trace,
    is_constant_none,
)
from truetune.source.symbolic_execution.values_of_run import (
    Element,
    Instance,
    Mapping,
    Result,
    Sequence,
    Value,
)

ENABLING_METHODS = ("gradient_checkpointing_enable", "activation_checkpointing_enable")
CHECKPOINT_FUNCTIONS = (
    "torch.utils.checkpoint.checkpoint",
    "torch.utils.checkpoint.checkpoint_sequential",
)
ADAPTER_WRAPPERS = ("peft.get_peft_model",)
LAYER_ADAPTERS = ("peft.*LoraConfig", "peft.*LoHaConfig", "peft.*LoKrConfig", "peft.*OFTConfig")
"""Adapters inside of layers; those of prompts put trained vectors before the first layer"""
EMBEDDING_ARGUMENTS = ("modules_to_save", "trainable_token_indices", "layers_to_transform")
"""Arguments of an adapter that may train the embedding, or leave the first layers out"""
EMBEDDING_NAMES = ("embed", "wte", "wpe", "tok")
HAND_TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer")
ENABLING_LIBRARIES = ("trl.*Trainer", "unsloth.*", "axolotl.*", "llamafactory.*")
"""They enable input gradients themselves, or have checkpoints of their own"""
KBIT_PREPARATIONS = ("peft.prepare_model_for_kbit_training", "peft.prepare_model_for_int8_training")
ENABLING_INPUTS = (
    "enable_input_require_grads",
    "register_forward_hook",
    "register_forward_pre_hook",
    "prepare_model_for_gradient_checkpointing",
    "_prepare_model_for_gradient_checkpointing",
    "retain_grad",
)
ENABLING_WORDS = ("make_inputs_require_grad", "requires_grad=True")
LAST_REENTRANT_BY_DEFAULT = "4.57.6"
FIRST_NON_REENTRANT_BY_DEFAULT = "5.0.0"
"""transformers: `use_reentrant` of `gradient_checkpointing_enable()`"""
DDP_WRAPPERS = ("torch.nn.parallel.*DistributedDataParallel",)


class ReentrantCheckpoints(NamedTuple):
    """Reentrant checkpoints that cannot do what they are for."""

    kind: Literal["frozen inputs", "ddp"]
    home: Module
    place: ast.AST
    """What makes the checkpoints reentrant"""
    other_home: Module
    other: ast.AST
    """What freezes the embedding; the wrapper of DDP"""


def places_enabling_gradient_checkpointing(module: Module) -> Iterator[object]:
    """The places of a file that switch gradient checkpointing on."""
    yield from module.methods(*ENABLING_METHODS)
    yield from module.calls(*CHECKPOINT_FUNCTIONS)
    yield from (call for call in module.all_calls if "checkpoint_impl" in call.keywords)
    for call in module.calls("transformers.*TrainingArguments"):
        if "gradient_checkpointing" in call.keywords:
            yield call


def faulty_reentrant_checkpoints(module: Module) -> Iterator[ReentrantCheckpoints]:
    """The reentrant checkpoints of a file's runs that lose the gradients, or that DDP refuses, each
    once.
    """
    seen: set[tuple[str, ast.AST]] = set()
    if not any(
        True
        for part in module.self_and_files_run_together
        for _ in places_enabling_gradient_checkpointing(part)
    ):
        return
    for trace in traces_of_scripts_that_reach_file(module):
        if not trace.is_whole:
            continue
        for found in (
            *_checkpoints_with_frozen_inputs(trace, module),
            *_checkpoints_refused_by_ddp(trace),
        ):
            # The finding stands in the file that switches the checkpoints on.
            if found.home.path == module.path and (found.kind, found.place) not in seen:
                seen.add((found.kind, found.place))
                yield found


def _checkpoints_with_frozen_inputs(trace: Trace, module: Module) -> Iterator[ReentrantCheckpoints]:
    """Reentrant checkpoints over an embedding that is frozen."""
    if any(map(_may_enable_input_gradients, module.self_and_files_run_together)) or not _run_trains(
        trace
    ):
        return
    frozen = _event_freezing_model(trace)
    if frozen is None:
        return
    for event in _reentrant_checkpointing_after_freeze(trace, frozen):
        yield ReentrantCheckpoints(
            "frozen inputs", event.home, event.node, frozen.home, frozen.node
        )
    for home, call in _reentrant_checkpoints_by_hand(module):
        yield ReentrantCheckpoints("frozen inputs", home, call.node, frozen.home, frozen.node)


def _run_trains(trace: Trace) -> bool:
    """Does the run train, by a loop or by a trainer that leaves the model as it is?"""
    if any(trace.calls(*ENABLING_LIBRARIES)):
        return False
    if any(trace.methods("backward")) or any(trace.calls("*.backward")):
        return True
    return any(trace.methods("train", "fit"))


def _may_enable_input_gradients(module: Module) -> bool:
    """May a file make the embedding's output require gradients?"""
    if module.mentions(*ENABLING_INPUTS, *ENABLING_WORDS):
        return True
    if any(
        _kbit_preparation_enables_input_gradients(module, call)
        for call in module.calls(*KBIT_PREPARATIONS)
    ):
        return True
    for assign in module.nodes(ast.Assign):
        is_switch = any(
            isinstance(target, ast.Attribute) and target.attr == "requires_grad"
            for target in assign.targets
        )
        if is_switch and module.flow.value(assign.value) is not False:
            return True
    return any(
        (requires_grad_argument := call.argument(0, "requires_grad")) is None
        or module.flow.value(requires_grad_argument) is not False
        for call in module.methods("requires_grad_")
    )


def _kbit_preparation_enables_input_gradients(module: Module, call: Call) -> bool:
    """Does the preparation for k-bit training enable input gradients, as it does by default?"""
    use_gradient_checkpointing_argument = call.argument(1, "use_gradient_checkpointing")
    return (
        use_gradient_checkpointing_argument is None
        or module.flow.value(use_gradient_checkpointing_argument) is not False
    )


def _event_freezing_model(trace: Trace) -> Event | None:
    """What freezes a whole model in a run, its embedding too; None where nothing surely does."""
    for event in trace.events:
        if any(event.frames("branch")):
            continue
        if isinstance(event, CallEvent) and (
            _adapter_leaves_embedding_frozen(event) or _freezes_model(event)
        ):
            return event
        if isinstance(event, StoreEvent) and _freezes_parameters(event):
            return event
    return None


def _adapter_leaves_embedding_frozen(call: CallEvent) -> bool:
    """Is it `get_peft_model` with an adapter that leaves the embedding frozen?"""
    if not call.named(*ADAPTER_WRAPPERS):
        return False
    config = call.argument(1, "peft_config")
    if not isinstance(config, Result) or not config.call.named(*LAYER_ADAPTERS):
        return False
    made = config.call
    if made.is_open or any(not _is_missing_or_none(made, name) for name in EMBEDDING_ARGUMENTS):
        return False
    return not _targets_may_hold_embedding(made.keywords.get("target_modules"))


def _is_missing_or_none(call: CallEvent, name: str) -> bool:
    """Is an argument left out, or None?"""
    argument = call.keywords.get(name)
    return argument is None or is_constant_none(argument)


def _targets_may_hold_embedding(targets: Value | None) -> bool:
    """May the targets of an adapter hold the embedding? They do not where all names are known and
    none is like it.
    """
    if targets is None or is_constant_none(targets):
        return False
    names = targets.items if isinstance(targets, Sequence) else [targets]
    for name in names:
        text = constant_of(name)
        if not isinstance(text, str) or any(part in text for part in EMBEDDING_NAMES):
            return True
    return False


def _freezes_model(call: CallEvent) -> bool:
    """Is it `model.requires_grad_(False)`, of a whole model?"""
    if call.method != "requires_grad_" or call.receiver is None:
        return False
    requires_grad_argument = call.argument(0, "requires_grad")
    return constant_of(requires_grad_argument) is False and _is_whole_model(call.receiver)


def _freezes_parameters(store: StoreEvent) -> bool:
    """Is it `parameter.requires_grad = False`, for all parameters of a whole model?"""
    base = store.base
    if store.key != "requires_grad" or constant_of(store.value) is not False:
        return False
    if not isinstance(base, Element) or not isinstance(base.iterable, Result):
        return False
    call = base.iterable.call
    return (
        call.method == "parameters" and call.receiver is not None and _is_whole_model(call.receiver)
    )


def _is_whole_model(value: Value) -> bool:
    """Is it a model that was loaded or made, and no part of one?"""
    ways = lineages_back_to_origins(value)
    return bool(ways) and all(
        isinstance(way.origin, Instance)
        or (
            way.call_that_gave_origin is not None
            and way.call_that_gave_origin.named("*.from_pretrained", "*.from_config")
        )
        for way in ways
    )


def _reentrant_checkpointing_after_freeze(trace: Trace, frozen: Event) -> Iterator[CallEvent]:
    """What switches reentrant checkpointing of transformers on, once the model is frozen."""
    is_adapter = isinstance(frozen, CallEvent) and frozen.named(*ADAPTER_WRAPPERS)
    for call in trace.methods(*ENABLING_METHODS):
        if any(call.frames("branch")):
            continue
        # peft enables input gradients itself where the model it wraps has checkpointing on.
        if is_adapter and call.number < frozen.number:
            return
        argument = call.argument(0, "gradient_checkpointing_kwargs")
        if argument is None:
            argument = call.argument(-1, "activation_checkpointing_kwargs")
        if _is_reentrant(trace.entry, argument) and not call.is_open:
            yield call
    yield from _trainer_arguments_enabling_reentrant_checkpointing(trace)


def _trainer_arguments_enabling_reentrant_checkpointing(trace: Trace) -> Iterator[CallEvent]:
    """The arguments of a plain trainer that switch reentrant checkpointing on."""
    for trainer in trace.calls(*HAND_TRAINERS):
        arguments = trainer.argument(1, "args")
        if not isinstance(arguments, Result) or arguments.call.is_open:
            continue
        call = arguments.call
        is_on = constant_of(call.keywords.get("gradient_checkpointing")) is True
        if is_on and _is_reentrant(trace.entry, call.keywords.get("gradient_checkpointing_kwargs")):
            yield call


def _is_reentrant(entry: Module, given: Value | None) -> bool:
    """Do these arguments of a checkpoint make it reentrant, or does the pinned release where they
    are left out?
    """
    if given is None or is_constant_none(given):
        age = entry.pins.age_of_asked_releases(
            "transformers", LAST_REENTRANT_BY_DEFAULT, FIRST_NON_REENTRANT_BY_DEFAULT
        )
        return age == "older"
    if not isinstance(given, Mapping):
        return False
    return constant_of(given.entries.get("use_reentrant")) is True


def _reentrant_checkpoints_by_hand(module: Module) -> Iterator[tuple[Module, Call]]:
    """The calls of a run's files that wrap layers into reentrant checkpoints, each with its file."""
    for part in module.self_and_files_run_together:
        for call in part.calls(*CHECKPOINT_FUNCTIONS):
            use_reentrant_argument = call.keywords.get("use_reentrant")
            if (
                use_reentrant_argument is not None
                and part.flow.value(use_reentrant_argument) is True
            ):
                yield part, call
        for call in part.all_calls:
            how = call.keywords.get("checkpoint_impl")
            if isinstance(how, ast.Attribute) and how.attr == "REENTRANT":
                yield part, call


def _checkpoints_refused_by_ddp(trace: Trace) -> Iterator[ReentrantCheckpoints]:
    """Reentrant checkpoints of a model that DDP wraps with `find_unused_parameters`."""
    if any(trace.methods("_set_static_graph")):
        return
    for wrapper in trace.calls(*DDP_WRAPPERS):
        finds = constant_of(wrapper.argument(-1, "find_unused_parameters")) is True
        static = wrapper.argument(-1, "static_graph")
        if not finds or (static is not None and constant_of(static) is not False):
            continue
        for call in trace.methods(*ENABLING_METHODS):
            gradient_checkpointing_kwargs_argument = call.argument(
                0, "gradient_checkpointing_kwargs"
            )
            if _is_reentrant(trace.entry, gradient_checkpointing_kwargs_argument) and not any(
                call.frames("branch")
            ):
                yield ReentrantCheckpoints("ddp", call.home, call.node, wrapper.home, wrapper.node)
    for arguments in _trainer_arguments_enabling_reentrant_checkpointing(trace):
        if constant_of(arguments.keywords.get("ddp_find_unused_parameters")) is True:
            yield ReentrantCheckpoints(
                "ddp", arguments.home, arguments.node, arguments.home, arguments.node
            )
