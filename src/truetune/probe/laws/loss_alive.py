"""The loss of every micro-batch that has labels is finite."""

from __future__ import annotations

import math
from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.trainer_gradients import (
    fix_mode_without_waiting_for_processes,
    loss_of,
)

COST: Cost = "quick"
# Chosen, not measured: each is a forward pass of the real model, which the run waits for.
MAX_BATCHES = 4


def measure_law(trial: Trial) -> Measured:
    """Share of the micro-batches whose loss is nan or infinite, without dropout."""
    batches = [
        (i, batch)
        for i, batch in enumerate(trial.batches[:MAX_BATCHES])
        if _has_labels_in_loss(batch)
    ]
    if not batches:
        raise Untested("no batch has a label")
    with fix_mode_without_waiting_for_processes(trial), torch.no_grad():
        losses = {i: float(loss_of(trial, batch)) for i, batch in batches}
    dead = {str(i): str(loss) for i, loss in losses.items() if not math.isfinite(loss)}
    return Measured(
        len(dead) / len(losses),
        0.0,
        "share of micro-batches",
        {"dead": dead, "batches": len(losses)},
    )


def _has_labels_in_loss(batch: dict[str, Any]) -> bool:
    """Is a label of this batch in the loss? Yes where it has no labels by name: its loss is made of something else."""
    labels = [
        value
        for key, value in batch.items()
        if key.endswith("labels") and isinstance(value, torch.Tensor)
    ]
    return not labels or any(bool((value != -100).any()) for value in labels)
