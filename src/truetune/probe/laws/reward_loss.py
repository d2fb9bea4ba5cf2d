"""A reward model's loss falls as the chosen answer's score rises above that of the rejected answer of its pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.scores_of_pairs import (
    CHOSEN,
    REJECTED,
    ScoredAnswer,
    ScoringPass,
    answers_of_rows,
    require_reward_trainer,
    score_answers_inside,
)
from truetune.probe.measuring.trainer_gradients import (
    fix_mode_without_waiting_for_processes,
    loss_of,
)

COST: Cost = "quick"
# Micro-batches that are looked at. Chosen, not measured: each costs a pass; the loss treats all alike.
MAX_BATCHES = 2
# Pairs that are shown.
MAX_SHOWN_PAIRS = 4


def measure_law(trial: Trial) -> Measured:
    """Share of the pairs whose scores the loss moves the wrong way, or compares with those of another pair.

    The loss is asked at scores that are all 0: a random head's scores say nothing, and a term that keeps scores near 0
    has no gradient there. Its first derivative says whose score is to rise; the second, which two are compared.
    """
    require_reward_trainer(trial)
    turned: list[dict[str, Any]] = []
    mixed: list[dict[str, Any]] = []
    pairs = pulling = 0
    with fix_mode_without_waiting_for_processes(trial):
        for number, batch in enumerate(trial.batches[:MAX_BATCHES]):
            known = answers_of_rows(trial.rows[number])
            with score_answers_inside(trial, known, exchange=True) as seen, torch.enable_grad():
                loss = loss_of(trial, batch)
            by_row = _pairs_of_pass(seen)
            gradients = _gradients_by_scores(loss, seen)
            pairs += len(by_row)
            for row, sides in by_row.items():
                pulls = {name: float(gradients[one.call][one.line]) for name, one in sides.items()}
                # Their difference: a loss that draws both scores to values has two pulls of one sign.
                if not pulls[CHOSEN] < pulls[REJECTED]:
                    turned.append({"batch": number, "row": row, **pulls})
                pulling += any(pulls.values())
                partners = _rows_compared_with(gradients, sides[CHOSEN], by_row, seen)
                if partners and row not in partners:
                    mixed.append({"batch": number, "row": row, "with": partners[0]})
    if not pairs:
        raise Untested("no line that the loss scores is recognised as an answer of the batch")
    if not pulling:
        raise Untested("the loss does not depend on the scores as the model gives them")
    evidence = {
        "pairs": pairs,
        "turned": len(turned),
        "mixed": len(mixed),
        "turned places": turned[:MAX_SHOWN_PAIRS],
        "mixed places": mixed[:MAX_SHOWN_PAIRS],
    }
    wrong = max(len(turned), len(mixed)) / pairs
    return Measured(wrong, 0.0, "share of pairs that the loss treats the wrong way", evidence)


def _pairs_of_pass(seen: ScoringPass) -> dict[int, dict[str, ScoredAnswer]]:
    """Chosen and rejected answer of each row of which both were scored."""
    by_row: dict[int, dict[str, ScoredAnswer]] = {}
    for answer in seen.answers:
        by_row.setdefault(answer.row, {})[answer.side] = answer
    return {row: sides for row, sides in by_row.items() if len(sides) == 2}


def _gradients_by_scores(loss: torch.Tensor, seen: ScoringPass) -> list[torch.Tensor]:
    """(lines,) gradient of the loss by the scores of each pass; 0 where it does not depend on them."""
    if not loss.requires_grad:
        return [torch.zeros_like(scores) for scores in seen.scores]
    gradients = torch.autograd.grad(loss, seen.scores, allow_unused=True, create_graph=True)
    return [
        torch.zeros_like(scores) if gradient is None else gradient
        for scores, gradient in zip(seen.scores, gradients, strict=True)
    ]


def _rows_compared_with(
    gradients: Sequence[torch.Tensor],
    chosen: ScoredAnswer,
    by_row: dict[int, dict[str, ScoredAnswer]],
    seen: ScoringPass,
) -> list[int]:
    """Rows with whose rejected answer this chosen one is compared: the pull on one depends on the score of the other.

    None where the loss is linear in its scores, so that nothing can be told.
    """
    pull = gradients[chosen.call][chosen.line]
    if not pull.requires_grad:
        return []
    depends = torch.autograd.grad(pull, seen.scores, allow_unused=True, retain_graph=True)
    return [
        row
        for row, sides in by_row.items()
        if (by_pass := depends[sides[REJECTED].call]) is not None
        and float(by_pass[sides[REJECTED].line]) != 0
    ]
