"""Finds models that are saved or asked after a training, and have a newer adapter than the trained
one.

How it works: the model of each use is followed back to the call that put an adapter on it. Where
that call ran after the last training before the use, and the same code put the trained adapter on,
the trained one is lost.

The trade-off: where weights are loaded after that call, or a training follows, the new adapter may
be meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from truetune.source.parsed_source_file import Module
from truetune.source.symbolic_execution.run_scripts_and_keep_traces import (
    traces_of_scripts_that_reach_file,
)
from truetune.source.symbolic_execution.trace_back_to_load import lineages_back_to_origins
from truetune.source.symbolic_execution.trace_of_events import CallEvent, Frame, Trace
from truetune.source.symbolic_execution.values_of_run import Result, Value

WRAPS = ("peft.get_peft_model", "unsloth.*.get_peft_model")
TRAINERS = ("trl.*Trainer", "transformers.*Trainer", "unsloth.*Trainer")
USES = ("save_pretrained", "save_pretrained_merged", "push_to_hub", "generate", "merge_and_unload")
LOADS = ("load_adapter", "load_state_dict", "set_peft_model_state_dict")
LOAD_FUNCTIONS = ("peft.set_peft_model_state_dict", "peft.*.from_pretrained")


class NewAdapterUsed(NamedTuple):
    """A model that is used instead of the trained one."""

    call: CallEvent
    """What saves or asks it"""
    wrap: CallEvent
    """What put the new adapter on"""
    training: CallEvent


def new_adapters_used(module: Module) -> Iterator[NewAdapterUsed]:
    """The uses of a file, each place once."""
    seen: set[object] = set()
    for trace in traces_of_scripts_that_reach_file(module):
        trainings = list(trainer_train_calls(trace))
        for use in trace.methods(*USES) if trainings else ():
            if use.home.path != module.path or use.node in seen:
                continue
            new_adapter_used = _new_adapter_used_by(trace, use, trainings)
            # What is merged and then saved is one fault.
            if new_adapter_used is not None and new_adapter_used.wrap not in seen:
                seen |= {use.node, new_adapter_used.wrap}
                yield new_adapter_used


def trainer_train_calls(trace: Trace) -> Iterator[CallEvent]:
    """The calls of `train` of a library's trainer."""
    for call in trace.methods("train"):
        receiver = call.receiver
        if isinstance(receiver, Result) and receiver.call.named(*TRAINERS):
            yield call


def _new_adapter_used_by(
    trace: Trace, use: CallEvent, trainings: list[CallEvent]
) -> NewAdapterUsed | None:
    """How a use takes a new adapter; None where it does not, or may mean to."""
    earlier = [one for one in trainings if one.number < use.number]
    if use.receiver is None or not earlier or len(earlier) < len(trainings):
        return None
    training = earlier[-1]
    if not _branches_around_call(training) <= _branches_around_call(use):
        return None
    wrap = _last_adapter_wrap(use.receiver)
    if wrap is None or wrap.number < training.number:
        return None
    if _weights_are_loaded_after(trace, wrap) or not _same_code_wrapped_trained_model(
        training, wrap
    ):
        return None
    return NewAdapterUsed(use, wrap, training)


def _branches_around_call(call: CallEvent) -> set[tuple[object, bool]]:
    """The branches that a call stands in."""
    frames: Iterator[Frame] = call.frames("branch", "try", "except")
    return {(frame.node, frame.taken) for frame in frames}


def _last_adapter_wrap(model: Value) -> CallEvent | None:
    """The call that put an adapter on a model, the last one; None where it may have come about in
    another way.
    """
    wraps = [
        next((step for step in way.steps if step.named(*WRAPS)), None)
        for way in lineages_back_to_origins(model)
    ]
    return wraps[0] if all(one is wraps[0] for one in wraps) else None


def _weights_are_loaded_after(trace: Trace, wrap: CallEvent) -> bool:
    """Are weights loaded after the call that made the adapter?"""
    return any(
        call.number > wrap.number and (call.method in LOADS or call.named(*LOAD_FUNCTIONS))
        for call in trace.all_calls
    )


def _same_code_wrapped_trained_model(training: CallEvent, wrap: CallEvent) -> bool:
    """Did the same code put the adapter on that was trained?"""
    trainer = training.receiver
    model = trainer.call.argument(0, "model") if isinstance(trainer, Result) else None
    ways = lineages_back_to_origins(model) if model is not None else []
    return any(step.node is wrap.node for way in ways for step in way.steps)
