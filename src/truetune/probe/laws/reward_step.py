"""A step of the run's own optimizer on one pair raises the chosen answer's score above the rejected one's."""

from __future__ import annotations

from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.laws.optimizer_step import MAX_COPIED_WEIGHTS
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.scores_of_pairs import (
    CHOSEN,
    REJECTED,
    answers_of_rows,
    require_reward_trainer,
    score_answers_inside,
)
from truetune.probe.measuring.trainer_gradients import (
    collate_rows_on_device,
    fix_mode_without_waiting_for_processes,
    loss_of,
    replace_attribute,
    require_whole_weights,
    step_gradients,
)

COST: Cost = "whole"
# Pairs that are tried, each from the same weights. Chosen, not measured: each costs three passes.
MAX_PAIRS = 3
# Share of the pairs. A correct trainer has 0 and one that steps uphill 1; half is between them. A term beside the
# comparison (scores kept near 0, weight decay) may turn single pairs.
TOLERANCE = 0.5


def measure_law(trial: Trial) -> Measured:
    """Share of pairs whose margin (chosen minus rejected score) falls with a step on that pair; weights are put back.

    The step is compared with the gradient of the margin, so that its size does not matter: a rate that is too high
    for one pair is no fault of the direction.
    """
    require_reward_trainer(trial)
    require_whole_weights(trial)
    if not hasattr(trial.trainer, "create_optimizer"):
        raise Untested("the optimizer of a loop of your own is not known")
    if trial.collate is None:
        raise Untested("there is no collator")
    trained = _trained_tensors_that_can_be_copied(trial.model)
    rises: list[float] = []
    for row in [row for rows in trial.rows for row in rows][:MAX_PAIRS]:
        rise = _rise_of_margin_by_a_step(trial, row, trained)
        if rise is not None:
            rises.append(rise)
    if not rises:
        raise Untested("no row is recognised as a pair, or the step changes no weight")
    falling = sum(rise < 0 for rise in rises)
    evidence = {"pairs": len(rises), "falling": falling, "rises": rises}
    unit = "share of pairs whose margin falls with a step on them"
    return Measured(falling / len(rises), TOLERANCE, unit, evidence)


def _trained_tensors_that_can_be_copied(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The tensors that are trained. Raises Untested where there are none, or too many for a copy of their weights."""
    trained = [p for p in model.parameters() if p.requires_grad and p.is_floating_point()]
    if not trained or sum(p.numel() for p in trained) > MAX_COPIED_WEIGHTS:
        raise Untested("no tensor is trained, or too many to be copied")
    return trained


def _rise_of_margin_by_a_step(
    trial: Trial, row: Any, trained: list[torch.nn.Parameter]
) -> float | None:
    """How much the margin of a pair rises with a step on it, to first order; None where nothing can be said."""
    batch = collate_rows_on_device(trial, [row])
    before = [p.detach().clone() for p in trained]
    with (
        fix_mode_without_waiting_for_processes(trial),
        replace_attribute(trial.trainer, "optimizer", None),
    ):
        slope = _gradient_of_margin(trial, row, batch, trained)
        if slope is None:
            return None
        gradients = step_gradients(trial, [batch], trained)
        optimizer = trial.trainer.create_optimizer()
        try:
            for parameter, gradient in zip(trained, gradients, strict=True):
                parameter.grad = gradient.to(parameter.dtype)
            optimizer.step()
            moved = [p.detach() - old for p, old in zip(trained, before, strict=True)]
        finally:
            with torch.no_grad():
                for parameter, old in zip(trained, before, strict=True):
                    parameter.copy_(old)
    # In float64: sums over millions of products lose their sign in float32.
    rise = sum(float((m.double() * s.double()).sum()) for m, s in zip(moved, slope, strict=True))
    return rise or None


def _gradient_of_margin(
    trial: Trial, row: Any, batch: dict[str, Any], trained: list[torch.nn.Parameter]
) -> list[torch.Tensor] | None:
    """The gradient of chosen minus rejected score by the trained tensors; None where the pair is not recognised."""
    with score_answers_inside(trial, answers_of_rows([row])) as seen, torch.enable_grad():
        loss_of(trial, batch)
    sides = {answer.side: answer for answer in seen.answers}
    if len(sides) < 2:
        return None
    margin = seen.score_of(sides[CHOSEN]) - seen.score_of(sides[REJECTED])
    gradients = torch.autograd.grad(margin, trained, allow_unused=True)
    return [
        torch.zeros_like(p) if gradient is None else gradient
        for p, gradient in zip(trained, gradients, strict=True)
    ]
