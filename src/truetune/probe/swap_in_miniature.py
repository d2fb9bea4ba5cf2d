"""A miniature in the place of a trainer's model.

In a rehearsal's own process the model is one already, since the hook shrank it when it was loaded
(`truetune.probe.build_miniatures_instead_of_models`). In the user's process, for `truetune.rehearse(trainer)`, one is
built of the model in memory, and all that the trainer had is put back.

The trade-off: what a trainer has done to its model since it was built (adapters, a patched forward) is done again on
the miniature. What can't be done again is left out with a note.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from truetune.errors import UsageError
from truetune.probe import build_miniatures_instead_of_models
from truetune.probe.copy_forward_patch import copy_forward_patch
from truetune.probe.record_run_ready_to_train import unwrap_model
from truetune.probe.shrink_config import SHRUNK_ATTRIBUTE

# Attributes of a trainer that training steps change, of transformers and TRL: they are put back.
STATE_OF_A_STEP = ("model_wrapped", "ref_model", "optimizer", "_metrics", "_total_train_tokens")


@contextmanager
def swap_in_miniature(trainer: Any, own: bool) -> Iterator[Any]:
    """A miniature in the place of the trainer's model, as often as the trainer holds it.

    In a process of our `own` a model that is one already stays. Raises UsageError where there is no configuration to
    shrink.
    """
    model = trainer.model
    inner = innermost_model(model)
    if not hasattr(inner, "config"):
        raise UsageError(
            f"a rehearsal needs a model of transformers, and {type(inner).__name__} has no"
            " configuration"
        )
    if own and getattr(inner.config, SHRUNK_ATTRIBUTE, False):
        # The program may have cast it to 16 bits since.
        for held in (model, getattr(trainer, "ref_model", None)):
            if held is not None:
                held.float()
        yield model
        return
    with _miniature_with_own_optimizer(trainer, model) as small:
        yield small


@contextmanager
def _miniature_with_own_optimizer(trainer: Any, model: Any) -> Iterator[Any]:
    """A miniature of a trainer's model, with an optimizer of its own; the trainer has its own ones again afterwards."""
    build_miniatures_instead_of_models.notes.clear()
    build_miniatures_instead_of_models.real_config.clear()
    small = rebuild_miniature_with_adapters_and_patches(model)
    reference = getattr(trainer, "ref_model", None)
    # By identity: a trainer holds its model under several names (`model`, `model_wrapped`).
    kept = {
        name: value
        for name, value in vars(trainer).items()
        if value is model or name in STATE_OF_A_STEP
    }
    handler = trainer.callback_handler.model
    for name, value in kept.items():
        if value is model or name == "model_wrapped":
            setattr(trainer, name, small)
        elif name == "_metrics":  # a step adds to these lists in place
            trainer._metrics = copy.deepcopy(value)
    if reference is not None:
        trainer.ref_model = rebuild_miniature_with_adapters_and_patches(reference)
    if trainer.optimizer is not None:
        trainer.optimizer = None
        trainer.create_optimizer()
    trainer.callback_handler.model = small
    try:
        yield small
    finally:
        vars(trainer).update(kept)
        trainer.callback_handler.model = handler


def innermost_model(model: Any) -> Any:
    """The model of transformers inside PEFT's and others'."""
    model = unwrap_model(model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def rebuild_miniature_with_adapters_and_patches(model: Any) -> Any:
    """A miniature of a model in memory, with PEFT's adapters and what a trainer has put around its forward."""
    inner = innermost_model(model)
    small = build_miniatures_instead_of_models.miniature_of(inner)
    copy_forward_patch(inner, small)
    for parameter, twin in zip(inner.parameters(), small.parameters(), strict=False):
        twin.requires_grad_(parameter.requires_grad)
    small.train(model.training)
    if inner is unwrap_model(model):
        return small
    from peft import get_peft_model

    with suppress(Exception):
        return get_peft_model(small, copy.deepcopy(model.active_peft_config))
    build_miniatures_instead_of_models.note_once(
        "the adapter is left out: the miniature's layers have other names"
    )
    return small
