"""A step at the configured rate moves the weights by more than their dtype's rounding.

Adam moves a weight by about the learning rate. In bfloat16 the spacing is 2^-7 of the weight's power of two; a weight
plus less than half of its spacing is the same weight again, however often it is tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.trainer_gradients import require_whole_weights

COST: Cost = "quick"
# Optimizers whose step is about the rate itself, whatever the gradient's size.
RATE_SIZED_OPTIMIZERS = ("adam", "lion", "ademamix")
# Words in the names and options of optimizers that keep weights of 32 bits beside, or round at random.
ROUNDING_SAFE_WORDS = ("stochastic", "anyprecision", "master")
# Significant bits, with the implied one.
SIGNIFICANT_BITS = {torch.bfloat16: 8, torch.float16: 11, torch.float32: 24, torch.float64: 53}
MAX_SHOWN_TENSORS = 8
# Weights of a tensor that are looked at, evenly spread. Chosen, not measured: the standard error of a share of so many
# is 0.2 % at most.
MAX_SAMPLED_WEIGHTS = 65536
# Of the weights. docs/laws.md has 0 for a correct run and 0.84 for the fault: from 0.1 to 0.8 all decide alike.
TOLERANCE = 0.5


def measure_law(trial: Trial) -> Measured:
    """Share of the trained weights that half of a spacing keeps where they are, at the highest rate of the run."""
    require_whole_weights(trial)
    rate, optimizer = _highest_learning_rate_and_optimizer_name(trial)
    trained = _trained_tensors_of_known_rounding(trial)
    if not trained:
        raise Untested("no tensor of the model is trained")
    seen = {
        name: p.detach().flatten()[:: max(1, p.numel() // MAX_SAMPLED_WEIGHTS)]
        for name, p in trained.items()
    }
    share = {
        name: count_weights_stuck_by_rounding(weights, rate) / len(weights)
        for name, weights in seen.items()
    }
    total = sum(p.numel() for p in trained.values())
    stuck = round(sum(share[name] * p.numel() for name, p in trained.items()))
    worst = sorted(share, key=lambda name: -share[name])[:MAX_SHOWN_TENSORS]
    evidence: dict[str, Any] = {
        "rate": rate,
        "optimizer": optimizer,
        "weights": total,
        "stuck": stuck,
        "dtypes": sorted({str(p.dtype).removeprefix("torch.") for p in trained.values()}),
        "size": typical_size_of_weight_matrices(
            {name: seen[name] for name, p in trained.items() if p.dim() > 1}
        ),
        "by tensor": {name: round(share[name], 4) for name in worst},
    }
    unit = "share of trained weights that a step can't move"
    return Measured(stuck / total, TOLERANCE, unit, evidence)


def _trained_tensors_of_known_rounding(trial: Trial) -> dict[str, torch.nn.Parameter]:
    """The trained tensors of a dtype whose rounding is known, by name."""
    named = trial.model.named_parameters()
    return {name: p for name, p in named if p.requires_grad and p.dtype in SIGNIFICANT_BITS}


def typical_size_of_weight_matrices(seen: Mapping[str, torch.Tensor]) -> float | None:
    """The size (root mean square) of the trained matrices: the median, by tensor. Those that begin as zeros, as LoRA's
    B, and vectors have none to compare a step with; None where there is no other."""
    sizes = [float(weights.detach().float().square().mean().sqrt()) for weights in seen.values()]
    return median(size for size in sizes if size > 0) if any(sizes) else None


def count_weights_stuck_by_rounding(weights: torch.Tensor, rate: float) -> int:
    """How many of them stay as they are when `rate` is added or taken away, rounded to the nearest."""
    _, exponent = torch.frexp(weights.detach().float())
    # Half of the distance to the next number of this dtype: less is rounded away.
    half = torch.exp2((exponent - 1 - SIGNIFICANT_BITS[weights.dtype]).float())
    return int(((half > rate) & (weights != 0)).sum())


def _highest_learning_rate_and_optimizer_name(trial: Trial) -> tuple[float, str]:
    """The highest learning rate of the run, and its optimizer's name. Raises Untested where a step has another size."""
    args = getattr(trial.trainer, "args", None)
    if args is None:
        raise Untested("the optimizer of a loop of your own is not known")
    optimizer = getattr(trial.trainer, "optimizer", None)
    optimizer = getattr(optimizer, "optimizer", optimizer)
    name = (
        type(optimizer).__name__
        if optimizer is not None
        else str(getattr(args.optim, "value", args.optim))
    )
    options = f"{name} {getattr(args, 'optim_args', '') or ''}".lower()
    steps_by_rate = any(word in options for word in RATE_SIZED_OPTIMIZERS)
    if not steps_by_rate or any(word in options for word in ROUNDING_SAFE_WORDS):
        raise Untested(f"the size of a step of {name} is not known beforehand")
    # At the start a warm-up has set `lr` to zero: `initial_lr` is what it rises to.
    groups = getattr(optimizer, "param_groups", [{}])
    return (
        max(
            float(group.get("initial_lr", group.get("lr", args.learning_rate))) for group in groups
        ),
        name,
    )
