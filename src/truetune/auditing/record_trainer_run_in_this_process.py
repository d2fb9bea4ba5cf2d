"""Records the run in this process: `truetune.audit(trainer)`.

The probe observes the trainer without a copy of the process, and puts back what that changes. Its files go into a
folder that lives as long as this process. `truetune.rehearsal.rehearse_in_process` does the same for a rehearsal.

The trade-off: a failure here is the caller's exception, while the hook of `truetune run` contains it. Who calls
`truetune.audit` has asked for the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from truetune.auditing.temporary_folder_removed_with_process import open_workspace_until_exit
from truetune.errors import UsageError
from truetune.probe.run_record import Record


def record_run(
    run: Any,
    loader: Any,
    tokenizer: Any,
    *,
    loss: Any,
    given: Any,
    batches: int,
    laws: str | Sequence[str],
    canary: bool = False,
    keys: Mapping[str, str | int] | None = None,
    rollouts_follow: bool = False,
) -> Record:
    """Record the batches and laws of a trainer, or of a model with its loader.

    Args:
        run: a trainer, or a model.
        loader: the data loader, where `run` is a model.
        tokenizer: where the trainer does not hold it.
        loss: the function that the loop of the user's own computes its loss with.
        given: rows before any preparation, where they are known.
        batches: how many are recorded.
        laws: which laws of a correct training are tried.
        canary: put a unique string into each field, too.
        keys: how the loop names the arrays of its batches.
        rollouts_follow: will the rollouts of a trainer that samples its answers be recorded later?

    Raises:
        UsageError: `run` is no trainer and there is no loader, or a law has no such name.
    """
    from truetune.probe.record_run_ready_to_train import observe_run
    from truetune.probe.temporary_data_loader import temporary_data_loader_and_tokenizer

    # By its method and not its class: trainers of other packages need not be subclasses.
    trainer = run if hasattr(run, "get_train_dataloader") else None
    if trainer is None and loader is None:
        raise UsageError(
            f"{type(run).__name__} is no trainer; give its data loader too: audit(model, loader)"
        )
    # Until this process ends, since the report shows rows of the record.
    folder = open_workspace_until_exit()
    model = run if trainer is None else trainer.model
    with temporary_data_loader_and_tokenizer(trainer, loader) as (loader, tokenizer_of_trainer):
        record = observe_run(
            folder,
            model=model,
            loader=loader,
            tokenizer=tokenizer or tokenizer_of_trainer,
            trainer=trainer,
            source_data=given,
            loss=loss,
            count=batches,
            laws=laws,
            canary=canary,
            keys=keys,
        )
    if rollouts_follow and "lost" in record.facts:
        record.facts["rollouts_follow"] = record.facts.pop("lost")
    return record
