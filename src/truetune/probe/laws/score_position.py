"""A reward model's score is read at the last token of the row: it depends on each of its tokens, and on no padding."""

from __future__ import annotations

from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.scores_of_pairs import (
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
# Micro-batches that are looked at. Chosen, not measured: each costs a pass and a backward pass.
MAX_BATCHES = 2
# Rows that are shown.
MAX_SHOWN_ROWS = 4


def measure_law(trial: Trial) -> Measured:
    """Share of the rows whose score is not read at the last token, by its gradient at the embedded tokens."""
    require_reward_trainer(trial)
    beyond: list[dict[str, Any]] = []
    before: list[dict[str, Any]] = []
    rows = 0
    with fix_mode_without_waiting_for_processes(trial):
        for number, batch in enumerate(trial.batches[:MAX_BATCHES]):
            known = answers_of_rows(trial.rows[number])
            with (
                score_answers_inside(trial, known, with_embeddings=True) as seen,
                torch.enable_grad(),
            ):
                loss_of(trial, batch)
            if len(seen.embedded) != len(seen.scores):
                raise Untested("the model does not embed its tokens once a pass")
            heard = _places_that_scores_depend_on(seen)
            for answer in seen.answers:
                rows += 1
                last = int(heard[answer.call][answer.line].nonzero().max())
                apart = last - (answer.start + len(answer.ids) - 1)
                if apart > 0:
                    beyond.append(_describe(trial, number, answer, apart))
                elif apart < 0:
                    before.append(_describe(trial, number, answer, apart))
    if not rows:
        raise Untested("no line that the loss scores is recognised as an answer of the batch")
    evidence = {
        "rows": rows,
        "padding": len(beyond),
        "before the end": len(before),
        "padding places": beyond[:MAX_SHOWN_ROWS],
        "before the end places": before[:MAX_SHOWN_ROWS],
        "left out": max((len(one["left out"]) for one in before), default=0),
        "only stops": all(one["only stops"] for one in before),
    }
    unit = "share of rows whose score is not read at their last token"
    return Measured((len(beyond) + len(before)) / rows, 0.0, unit, evidence)


def _places_that_scores_depend_on(seen: ScoringPass) -> list[torch.Tensor]:
    """(lines, tokens) bool of each pass: does the score of the line depend on the embedded token?"""
    whole = torch.stack([scores.float().sum() for scores in seen.scores]).sum()
    # The lines of a pass do not see each other (law `batch-composition`), so that one backward pass tells all.
    gradients = torch.autograd.grad(whole, seen.embedded, allow_unused=True)
    heard = []
    for gradient in gradients:
        if gradient is None or not bool((gradient != 0).any(-1).any(-1).all()):
            raise Untested("a score has no gradient at the embedded tokens")
        heard.append((gradient != 0).any(-1))
    return heard


def _describe(trial: Trial, number: int, answer: ScoredAnswer, apart: int) -> dict[str, Any]:
    """Where it is, and the last tokens that the score leaves out."""
    left_out = list(answer.ids[apart:]) if apart < 0 else []
    stop = getattr(trial.tokenizer, "eos_token_id", None)
    spell = getattr(trial.tokenizer, "decode", str)
    return {
        "batch": number,
        "row": answer.row,
        "side": answer.side,
        "apart": apart,
        "left out": [spell([token]) for token in left_out],
        "only stops": all(token == stop for token in left_out),
    }
