"""Advice on where to begin again after a step that spoiled a run: from a checkpoint before it, if there can be one."""

from __future__ import annotations

from truetune.logs.run_log import RunLog


def advise_restart(log: RunLog, step: float) -> str:
    """Advice on weights that are spoiled from `step` on: from which checkpoint to continue, as the
    beginning of a remedy.
    """
    older = [checkpoint for checkpoint in log.checkpoints if checkpoint < step]
    if older:
        return f"go back to checkpoint-{older[-1]}"
    if log.checkpoints:
        return "all checkpoints here are from after that step: start again from the model that training started from"
    first = _first_saved_step(log)
    if first is not None and step <= first:
        return (
            "start again from the model that training started from (the first checkpoint is saved at step"
            f" {first:,.0f})"
        )
    return "restart from a checkpoint before that step, or from the base model if there is none"


def _first_saved_step(log: RunLog) -> float | None:
    """The earliest step at which the trainer can have saved; None where the log does not tell it.

    The state holds save_steps under any strategy: saved by epochs, the first checkpoint is at the end of the first.
    """
    every = log.fact_as_number("save_steps")
    total, epochs = log.planned_steps, log.fact_as_number("num_train_epochs")
    if every is None or every < 1 or not total or not epochs:
        return None
    return min(every, total / epochs)
