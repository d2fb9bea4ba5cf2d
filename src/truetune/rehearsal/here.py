"""A rehearsal of the run in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from truetune.errors import UsageError
from truetune.probe.record import Record


def record_of(
    trainer: Any, *, given: Any = None, batches: int = 8, laws: str | Sequence[str] = "quick", rows: int = 6
) -> Record:
    """Raises UsageError where this is no trainer, or a law has no such name."""
    from truetune.probe.recite import rehearse

    if not hasattr(trainer, "get_train_dataloader"):
        raise UsageError(f"{type(trainer).__name__} is no trainer of transformers, which a rehearsal needs")
    return rehearse(trainer, {"batches": batches, "laws": laws, "rows": rows}, given=given)
