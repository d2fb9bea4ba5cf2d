"""Rehearses the run of a trainer in this process: `truetune.rehearse(trainer)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from truetune.auditing.temporary_folder_removed_with_process import open_workspace_until_exit
from truetune.errors import UsageError
from truetune.probe.run_record import Record


def record_rehearsal(
    trainer: Any,
    *,
    source_data: Any = None,
    batches: int = 8,
    laws: str | Sequence[str] = "quick",
    rows: int = 6,
    mutate: bool | Sequence[str] = False,
) -> Record:
    """Rehearse a trainer's run on a miniature of its model.

    Args:
        trainer: of transformers, or a subclass.
        source_data: rows before any preparation, where they are known.
        batches: how many are recorded.
        laws: which laws of a correct training are tried.
        rows: how many are memorised and asked for.
        mutate: put faults into the batch, too: all, or those of these names.

    Raises:
        UsageError: this is no trainer, or a law or fault has no such name.
    """
    from truetune.probe.faults_put_into_memorised_batch import LABEL_FAULTS
    from truetune.probe.rehearse_by_memorising_and_reciting import rehearse_run

    # Before anything is touched: a loop of the user's own has no loader to ask.
    if not hasattr(trainer, "get_train_dataloader"):
        raise UsageError(
            f"{type(trainer).__name__} is no trainer of transformers, which a rehearsal needs"
        )
    unknown = [] if isinstance(mutate, bool) else sorted(set(mutate) - {*LABEL_FAULTS})
    if unknown:
        raise UsageError(
            f"no fault is called {', '.join(unknown)}: there are {', '.join(LABEL_FAULTS)}"
        )
    return rehearse_run(
        trainer,
        {"batches": batches, "laws": laws, "rows": rows, "mutate": mutate},
        # Until this process ends, since the report reads the tokenizer of the record.
        open_workspace_until_exit(),
        source_data=source_data,
    )
