"""A trainer's data loader, made for looking and forgotten afterwards.

The loader that a trainer makes itself is the only one whose sampler, collator and preparation are those of the run.
The trade-off: making it draws from generators and registers it with accelerate; both are put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from truetune.probe.peek_batches import loader_samplers_datasets_and_collators
from truetune.probe.restore_state_changed_by_observing_run import preserve_state


@contextmanager
def temporary_data_loader_and_tokenizer(
    trainer: Any, loader: Any = None
) -> Iterator[tuple[Any, Any]]:
    """Inside, a data loader of the trainer (or the one given), and its tokenizer; the trainer is as before
    afterwards.
    """
    if trainer is None:
        yield loader, _collator_tokenizer(loader)
        return
    prepared = getattr(trainer.accelerator, "_dataloaders", [])
    before = len(prepared)
    with preserve_state():
        train_loader = loader if loader is not None else trainer.get_train_dataloader()
        try:
            yield (
                train_loader,
                getattr(trainer, "processing_class", None) or _collator_tokenizer(train_loader),
            )
        finally:
            # accelerate keeps each loader that it has prepared, and would save the state of this one with a checkpoint.
            del prepared[before:]


def _collator_tokenizer(loader: Any) -> Any:
    """The tokenizer of the loader's collator, where the trainer was given none; None where there is none."""
    held = (
        vars(part).get("tokenizer")
        for part in loader_samplers_datasets_and_collators(loader)
        if hasattr(part, "__dict__")
    )
    return next((tokenizer for tokenizer in held if hasattr(tokenizer, "save_pretrained")), None)
