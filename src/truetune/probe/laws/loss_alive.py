"""The loss of every micro-batch that has labels is finite and has a gradient."""

from __future__ import annotations

import math
from typing import Any

import torch

from truetune.probe.laws import Cost, Measured, Trial, Untested
from truetune.probe.laws.gradients import loss_of, quiet, some, whole

COST: Cost = "quick"
BATCHES, FEW = 4, 2_000_000


def measure(trial: Trial) -> Measured:
    """Share of the micro-batches whose loss is not finite or moves none of some trained tensors, without dropout."""
    whole(trial)
    batches = [(i, batch) for i, batch in enumerate(trial.batches[:BATCHES]) if _labelled(batch)]
    if not batches:
        raise Untested("no batch has a label")
    with quiet(trial):
        parameters = _smallest(trial)
        found = [{"batch": i} | _look(trial, batch, parameters) for i, batch in batches]
    dead = [f for f in found if not (math.isfinite(f["loss"]) and f["gradient"] > 0 and math.isfinite(f["gradient"]))]
    return Measured(len(dead) / len(found), 0.0, "share of micro-batches", {"dead": dead, "batches": len(found)})


def _smallest(trial: Trial) -> list[torch.nn.Parameter]:
    try:
        return list(some(trial.model, FEW).values())
    except Untested:
        return list(some(trial.model, 2**62).values())[:1]


def _look(trial: Trial, batch: dict[str, Any], parameters: list[torch.nn.Parameter]) -> dict[str, float]:
    loss = loss_of(trial, batch)
    if not loss.requires_grad:
        return {"loss": float(loss.detach()), "gradient": 0.0}
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    squares = sum(float(g.float().square().sum()) for g in gradients if g is not None)
    return {"loss": float(loss.detach()), "gradient": squares**0.5}


def _labelled(batch: dict[str, Any]) -> bool:
    found = [value for key, value in batch.items() if key.endswith("labels") and isinstance(value, torch.Tensor)]
    return not found or any(bool((value != -100).any()) for value in found)
