"""Every supervised token of a micro-batch weighs the same in the loss."""

from __future__ import annotations

from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.targets_read_from_loss_gradient import (
    NEXT,
    learned_targets,
    refuse_losses_without_targets,
)
from truetune.probe.measuring.trainer_gradients import coarsest_dtype

COST: Cost = "quick"
# Of the median weight. docs/laws.md has 5e-7 for a correct loss in float32 and 1 for a fault. The value for 16 bits,
# where weights are read from rounded gradients, is chosen, not measured.
TOLERANCE = 0.02
TOLERANCE_16_BIT = 0.2


def measure_law(trial: Trial) -> Measured:
    """Largest weight of a token over the median, less one, in one micro-batch."""
    if trial.kind not in ("sft", "loop"):
        raise Untested("the tokens of pairs weigh by their pair")
    passes = learned_targets(trial)
    # Else the few that a token happens to explain would be compared, each by its teacher's certainty.
    refuse_losses_without_targets(passes)
    worst = -1.0
    evidence: dict[str, Any] = {}
    for number, pass_ in passes:
        known = torch.tensor([name == NEXT for name in pass_.target], device=pass_.weight.device)
        weights, lines = pass_.weight[known].abs(), pass_.places[known, 0]
        if len(weights) < 2 or _weight_spread(weights) <= worst:
            continue
        worst = _weight_spread(weights)
        by_line = [weights[lines == line] for line in sorted(set(lines.tolist()))]
        evidence = {
            "batch": number,
            "within a line": max(
                (_weight_spread(line) for line in by_line if len(line) > 1), default=0.0
            ),
            "by line": [{"tokens": len(line), "weight": float(line.median())} for line in by_line],
            "asked for": _are_unequal_weights_configured(trial, trial.batches[number]),
        }
    if not evidence:
        raise Untested("no two tokens of a micro-batch are learned as the next token")
    is_16_bit = coarsest_dtype(trial) in (torch.bfloat16, torch.float16)
    tolerance = TOLERANCE_16_BIT if is_16_bit else TOLERANCE
    return Measured(
        worst, tolerance, "largest difference of a token's weight from the median", evidence
    )


def _weight_spread(weights: torch.Tensor) -> float:
    """The largest relative distance of (n,) weights from their median."""
    return float((weights / weights.median().clamp_min(1e-30) - 1).abs().max())


def _are_unequal_weights_configured(trial: Trial, batch: dict[str, Any]) -> bool:
    """Did the user ask for unequal weights: by a loss of their own, by its type, or by a column of weights?"""
    if getattr(trial.trainer, "compute_loss_func", None) is not None:
        return True
    if getattr(getattr(trial.trainer, "args", None), "loss_type", None) in ("dft",):
        return True
    return any("weight" in key for key in batch)
