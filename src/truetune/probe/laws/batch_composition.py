"""A row's logits do not depend on the other rows of its batch."""

from __future__ import annotations

from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.compute_logits import (
    alter_tokens,
    compute_logits,
    cut_rows,
    first_batch_with_ids,
)
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.rounding_tolerance import (
    relative_difference_allowing_expert_routing,
    rounding_tolerance,
)

COST: Cost = "quick"


def measure_law(trial: Trial) -> Measured:
    """Logits of the last row of a real batch (where tokens queue, it comes last), before and after the other rows are
    given other tokens; with the model in training mode, as the trainer has it, and in evaluation mode.
    """
    batch = _two_row_batch(trial)
    ids = batch["input_ids"]
    others = alter_tokens(ids, trial)
    others[-1] = ids[-1]
    worst = {}
    for mode in ("training", "evaluation"):
        before, after = (
            compute_logits(trial.model, batch | {"input_ids": x}, training=mode == "training")[-1]
            for x in (ids, others)
        )
        worst[mode] = relative_difference_allowing_expert_routing(before, after, trial.model)
    value = float(torch.tensor(list(worst.values())).max())
    # Exactly 0 in a dense model; rows of a mixture of experts may share a capacity, which is the fault looked for.
    return Measured(
        value,
        rounding_tolerance(trial.model),
        "relative difference of logits",
        {"by mode": worst, "rows": len(ids)},
    )


def _two_row_batch(trial: Trial) -> dict[str, Any]:
    """The first batch of two rows or more, cut. Raises Untested."""
    # It says so where no batch has ids at all.
    first_batch_with_ids(trial)
    for candidate in trial.batches:
        ids = candidate.get("input_ids")
        if isinstance(ids, torch.Tensor) and ids.dim() == 2 and len(ids) > 1:
            return cut_rows(trial, candidate)
    raise Untested("each micro-batch is one row")
