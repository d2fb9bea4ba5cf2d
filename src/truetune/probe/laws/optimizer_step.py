"""Steps of the run's own optimizer at its own rate change the weights: few of them stay as they were, bit by bit."""

from __future__ import annotations

from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.trainer_gradients import (
    fix_mode_without_waiting_for_processes,
    refuse_trainers_that_sample_answers,
    replace_attribute,
    require_whole_weights,
    step_gradients,
)

COST: Cost = "whole"
# Chosen, not measured: the first step of Adam moves each weight by the rate itself, whatever its gradient; the next two
# show that this repeats. Each further one is a pass of the real model.
STEPS = 3
MAX_SHOWN_TENSORS = 8
# Of the weights. docs/laws.md has 0 for a correct run, and 0.98 for one whose steps change nothing.
TOLERANCE = 0.5
# Weights that are copied at most, as they are put back: 2 GB in float32. Chosen, not measured.
MAX_COPIED_WEIGHTS = 500_000_000
# Size from which a gradient is one: ten times what Adam adds to the root of its square.
MIN_GRADIENT = 1e-7


def measure_law(trial: Trial) -> Measured:
    """Share of the trained weights with a gradient that are the same after some steps; they are put back."""
    require_whole_weights(trial)
    refuse_trainers_that_sample_answers(trial)
    trainer = trial.trainer
    if not hasattr(trainer, "create_optimizer"):
        raise Untested("the optimizer of a loop of your own is not known")
    trained = {
        name: p
        for name, p in trial.model.named_parameters()
        if p.requires_grad and p.is_floating_point()
    }
    if not trained or sum(p.numel() for p in trained.values()) > MAX_COPIED_WEIGHTS:
        raise Untested("no tensor is trained, or too many to be copied")
    same, counts = _count_unchanged_weights_after_steps(trial, trained)
    total = sum(counts.values())
    if not total:
        raise Untested("no weight has a gradient")
    with_gradient = [name for name in trained if counts[name]]
    worst = sorted(with_gradient, key=lambda name: -same[name] / counts[name])[:MAX_SHOWN_TENSORS]
    evidence: dict[str, Any] = {
        "rate": trainer.args.learning_rate,
        "steps": STEPS,
        "weights": total,
        "same": sum(same.values()),
        "by tensor": {name: round(same[name] / counts[name], 4) for name in worst},
    }
    return Measured(
        sum(same.values()) / total,
        TOLERANCE,
        f"share of weights that are the same after {STEPS} steps",
        evidence,
    )


def _count_unchanged_weights_after_steps(
    trial: Trial, trained: dict[str, torch.nn.Parameter]
) -> tuple[dict[str, int], dict[str, int]]:
    """Of each tensor: how many weights with a gradient are the same after some steps, and how many have one."""
    before = {name: p.detach().clone() for name, p in trained.items()}
    try:
        with (
            fix_mode_without_waiting_for_processes(trial),
            replace_attribute(trial.trainer, "optimizer", None),
        ):
            touched = _train_and_mark_weights_with_gradient(
                trial, trained, trial.trainer.create_optimizer()
            )
        same = {
            name: int(((p == before[name]) & touched[name]).sum()) for name, p in trained.items()
        }
    finally:
        with torch.no_grad():
            for name, p in trained.items():
                p.copy_(before[name])
    return same, {name: int(touched[name].sum()) for name in trained}


def _train_and_mark_weights_with_gradient(
    trial: Trial, trained: dict[str, torch.nn.Parameter], optimizer: torch.optim.Optimizer
) -> dict[str, torch.Tensor]:
    """Which weights had a gradient in one of the steps."""
    touched = {name: torch.zeros_like(p, dtype=torch.bool) for name, p in trained.items()}
    for number in range(STEPS):
        batch = trial.batches[number % len(trial.batches)]
        for (name, p), gradient in zip(
            trained.items(), step_gradients(trial, [batch], list(trained.values())), strict=True
        ):
            p.grad = gradient.to(p.dtype)
            touched[name] |= gradient.abs() > MIN_GRADIENT
        optimizer.step()
    return touched
