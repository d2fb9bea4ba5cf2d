"""Says whether the reference model of a preference training is the policy itself, or another model
than its start.

The trade-off: two models are one object where both go back to the same call that loads one, and no
copy was made on either way; a value of more than one origin is not judged, and neither is a script
that switches adapters anywhere.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from truetune.checks.source.evidence.optimizers_before_adapters import single_model_lineage
from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.fold_constants import constant_of
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Trace
from truetune.source.symbolic_execution.values_of_run import Result, Value, parts_of_value

PREFERENCE_TRAINERS = ("trl.*DPOTrainer", "trl.*KTOTrainer", "trl.*BCOTrainer")
POLICY_TRAINERS = ("trl.*PPOTrainer",)
"""Trainers with a penalty towards a reference, whose order of arguments differs between releases"""
LOG_SIGMOIDS = ("torch.nn.functional.logsigmoid", "torch.nn.LogSigmoid")
NO_GRADIENT = ("torch.no_grad", "torch.inference_mode")
SWITCHES = (
    "disable_adapter",
    "disable_adapters",
    "disable_adapter_layers",
    "set_adapter",
    "unmerge_adapter",
    "load_state_dict",
    "load_adapter",
)
"""Methods that make one object give the log-probabilities of another model"""
PREFERENCE_RUN = re.compile(
    r"(?<![a-z])(?:dpo|kto|orpo|ipo|simpo|bco|ppo|rlhf|rl|prefs?|preferences?)(?![a-z])",
    re.IGNORECASE,
)
"""Names of policies that a preference run has saved: its first model is the right reference when it is continued"""
MAX_VALUES = 4000
"""Values that are looked at behind one loss. Chosen: a preference loss has some hundred"""


@dataclass(frozen=True, slots=True)
class ReferenceIsPolicy:
    """A reference that is the policy."""

    reference: CallEvent
    policy: CallEvent
    """The pass of the policy; the trainer itself where it is handed both"""


@dataclass(frozen=True, slots=True)
class OtherReference:
    """A reference that is loaded from another place than the policy."""

    reference: CallEvent
    reference_name: str
    policy: CallEvent
    policy_name: str


def references_that_are_the_policy(module: Module) -> Iterator[ReferenceIsPolicy]:
    """The references of a file that are the policy's own object.

    Args:
        module: A file that is judged.

    Yields:
        Each place once: a trainer that gets one object as both, or a pass without gradients in a hand-written loss.
    """
    seen = set()
    for trace in traces_of_scripts_that_reach_file(module):
        for reference in (
            *_policy_as_trainer_reference(trace),
            *_policy_as_own_loss_reference(trace),
        ):
            if (
                reference.reference.home.path == module.path
                and reference.reference.node not in seen
            ):
                seen.add(reference.reference.node)
                yield reference


def references_of_other_models(module: Module) -> Iterator[OtherReference]:
    """The references of a file that are loaded from another folder or name than the policy, each
    place once.
    """
    seen = set()
    for trace in traces_of_scripts_that_reach_file(module):
        # Weights or an adapter that are put into a model afterwards make it another one than its name says.
        if any(trace.methods("load_state_dict", "load_adapter", "load_weights")):
            continue
        for found in (
            *_trainer_references_and_policies(trace),
            *_own_loss_references_and_policies(trace),
        ):
            reference, policy = found
            one, other = _adapterless_load_and_name(reference), _adapterless_load_and_name(policy)
            if one is None or other is None or one[1] == other[1] or one[0].node in seen:
                continue
            if PREFERENCE_RUN.search(other[1]):
                continue
            if one[0].home.path == module.path:
                seen.add(one[0].node)
                yield OtherReference(one[0], one[1], other[0], other[1])


def _trainer_references_and_policies(trace: Trace) -> Iterator[tuple[Value, Value]]:
    """The reference and the policy of each trainer that is given both."""
    for trainer in trace.calls(*PREFERENCE_TRAINERS, *POLICY_TRAINERS):
        is_by_place = trainer.named(*PREFERENCE_TRAINERS)
        model = trainer.argument(0, "model") if is_by_place else trainer.keywords.get("model")
        reference = trainer.keywords.get("ref_model")
        if reference is None and is_by_place:
            reference = trainer.argument(1, "ref_model")
        if model is not None and reference is not None:
            yield reference, model


def _own_loss_references_and_policies(trace: Trace) -> Iterator[tuple[Value, Value]]:
    """The models of the pass without gradients and of the one with them, behind a preference loss
    of one's own.
    """
    for loss in trace.calls(*LOG_SIGMOIDS):
        passes = [one for one in _model_passes_of_loss(loss) if one.receiver is not None]
        policies = {id(one.receiver): one for one in passes if not _is_in_no_grad_block(one)}
        references = {id(one.receiver): one for one in passes if _is_in_no_grad_block(one)}
        # A judge or a second teacher beside the reference would make it a guess which one is which.
        if len(policies) == len(references) == 1:
            (policy,), (reference,) = policies.values(), references.values()
            if policy.receiver is not None and reference.receiver is not None:
                yield reference.receiver, policy.receiver


def _adapterless_load_and_name(model: Value) -> tuple[CallEvent, str] | None:
    """The call that loads a model and its name; None where an adapter is put on, or the name is not
    known.
    """
    way = single_model_lineage(model)
    load = None if way is None else way.call_that_gave_origin
    if way is None or load is None or way.has_step("peft.PeftModel*.from_pretrained"):
        return None
    # A class of peft reads the adapter's folder, and the base that it names.
    if load.named("peft.*"):
        return None
    model_name_argument = load.argument(0, "pretrained_model_name_or_path") or load.keywords.get(
        "model_name"
    )
    name = None if model_name_argument is None else constant_of(model_name_argument)
    return (load, posixpath.normpath(name)) if isinstance(name, str) and name else None


def _policy_as_trainer_reference(trace: Trace) -> Iterator[ReferenceIsPolicy]:
    """Trainers that get the policy as the reference."""
    for trainer in trace.calls(*PREFERENCE_TRAINERS):
        # `ref_model` stood second for all of TRL's releases that take it by position.
        model, reference = trainer.argument(0, "model"), trainer.argument(1, "ref_model")
        if _share_all_weights(model, reference):
            yield ReferenceIsPolicy(trainer, trainer)


def _share_all_weights(model: Value | None, other: Value | None) -> bool:
    """Do two models certainly share all their weights?"""
    one, two = single_model_lineage(model), single_model_lineage(other)
    if one is None or two is None or one.origin is not two.origin:
        return False
    # A copy that both share is one object; adapters of both would be of two policies.
    apart = {id(step) for step in one.steps} ^ {id(step) for step in two.steps}
    return not any(
        step.named("copy.*") or step.method in ("merge_and_unload", "unload")
        for step in (*one.steps, *two.steps)
        if id(step) in apart
    )


def _policy_as_own_loss_reference(trace: Trace) -> Iterator[ReferenceIsPolicy]:
    """Losses of one's own whose reference is the policy's pass over the same batch, without
    gradients.
    """
    if any(trace.methods(*SWITCHES)):
        return
    for loss in trace.calls(*LOG_SIGMOIDS):
        passes = list(_model_passes_of_loss(loss))
        for reference in passes:
            if not _is_in_no_grad_block(reference):
                continue
            policy = next((one for one in passes if _is_policy_pass_for(one, reference)), None)
            if policy is not None:
                yield ReferenceIsPolicy(reference, policy)


def _model_passes_of_loss(loss: CallEvent) -> Iterator[CallEvent]:
    """The forward passes of models that a loss is computed from."""
    pending: list[Value] = list(loss.inputs)
    seen: set[int] = set()
    while pending and len(seen) < MAX_VALUES:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        pending.extend(parts_of_value(value))
        if not isinstance(value, Result) or value.call.receiver is None:
            continue
        if value.call.method in ("__call__", "forward") and single_model_lineage(
            value.call.receiver
        ):
            yield value.call


def _is_in_no_grad_block(call: CallEvent) -> bool:
    """Does a pass stand in `with torch.no_grad()`?"""
    for frame in call.frames("with"):
        given = frame.value
        if isinstance(given, Result) and given.call.named(*NO_GRADIENT):
            return True
    return False


def _is_policy_pass_for(call: CallEvent, reference: CallEvent) -> bool:
    """Is a pass one of the policy, over the reference's batch, by the same object, in the same
    loop?
    """
    if _is_in_no_grad_block(call) or not _share_all_weights(call.receiver, reference.receiver):
        return False
    given, asked = (
        [*one.args, *(one.keywords[name] for name in sorted(one.keywords))]
        for one in (call, reference)
    )
    if len(given) != len(asked) or not all(
        _is_same_input(one, other) for one, other in zip(given, asked, strict=True)
    ):
        return False
    loops = [[id(frame.node) for frame in one.frames("loop")] for one in (call, reference)]
    return loops[0] == loops[1]


def _is_same_input(one: Value, other: Value) -> bool:
    """Is the same value given to both, moved or not?"""
    if one is other:
        return True
    origins = [[way.origin for way in lineages_back_to_origins(value)] for value in (one, other)]
    return len(origins[0]) == len(origins[1]) == 1 and origins[0][0] is origins[1][0]
