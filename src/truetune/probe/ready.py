"""A trainer's data loader, made for looking and forgotten afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from truetune.probe.still import still


@contextmanager
def ready(trainer: Any, loader: Any = None) -> Iterator[tuple[Any, Any]]:
    """The data loader of the trainer (or the one given) and its tokenizer; the trainer is as before afterwards."""
    if trainer is None:
        yield loader, None
        return
    tokenizer = getattr(trainer, "processing_class", None) or getattr(trainer, "tokenizer", None)
    prepared = getattr(trainer.accelerator, "_dataloaders", [])
    before = len(prepared)
    with still():
        made = loader if loader is not None else trainer.get_train_dataloader()
        try:
            yield made, tokenizer
        finally:
            del prepared[before:]
