"""A rehearsal of the run in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from truetune.errors import UsageError
from truetune.probe.run_record import Record


def record_of(
    trainer: Any,
    *,
    given: Any = None,
    batches: int = 8,
    laws: str | Sequence[str] = "quick",
    rows: int = 6,
    mutate: bool | Sequence[str] = False,
) -> Record:
    """Raises UsageError where this is no trainer, or a law or fault has no such name."""
    from truetune.probe.label_mutants import ROWS
    from truetune.probe.rehearse_run import rehearse_run

    if not hasattr(trainer, "get_train_dataloader"):
        raise UsageError(
            f"{type(trainer).__name__} is no trainer of transformers, which a rehearsal needs"
        )
    if not isinstance(mutate, bool) and (unknown := sorted(set(mutate) - {*ROWS})):
        raise UsageError(f"no fault is called {', '.join(unknown)}: there are {', '.join(ROWS)}")
    return rehearse_run(
        trainer,
        {"batches": batches, "laws": laws, "rows": rows, "mutate": mutate},
        source_data=given,
    )
