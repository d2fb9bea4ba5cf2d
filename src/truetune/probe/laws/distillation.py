"""A distillation draws the student's predictions of a completion to the teacher's of the same tokens, and no others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.distilled_predictions import (
    DistilledPass,
    TeacherCall,
    distilled_passes,
    teacher_calls_of_loss,
    teacher_of,
    with_made_up_completions,
)
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.ways_to_compare_with_teacher import AS_SET

COST: Cost = "quick"
# Micro-batches that are looked at. Chosen, not measured: each costs a pass of the student and two of the teacher.
MAX_BATCHES = 2
# Places that are shown.
MAX_SHOWN_PLACES = 4
# Share of the predictions. A correct trainer has 0; the least fault is one prediction of a short completion, and a
# batch has some hundred.
TOLERANCE = 0.001
# Share of the predictions that no way explains, from which the loss is of another kind. Chosen, not measured: of TRL's
# own losses none is left, and a cross-entropy beside leaves all.
MAX_UNEXPLAINED = 0.1


@dataclass(frozen=True)
class _PredictionCounts:
    """What the loss does with the predictions of some batches: numbers of predictions."""

    in_loss: int
    compared: int
    """Those whose way of comparison was looked at"""
    other_ways: dict[str, int]
    """Those that are compared otherwise than the settings say, by the way"""
    away: int
    """Those that are moved away from the teacher's"""
    beside: int
    """Those in the loss that are of no completion"""
    missing: int
    """Those of a completion that are not in the loss"""

    @property
    def largest_share(self) -> float:
        """The largest share of predictions with one of the faults."""
        return max(
            sum(self.other_ways.values()) / self.compared,
            self.away / self.compared,
            (self.beside + self.missing) / max(1, self.in_loss + self.missing),
        )


def measure_law(trial: Trial) -> Measured:
    """Share of the predictions that are compared otherwise, or in the loss where they should not be."""
    unit = "share of predictions that are compared with the teacher's otherwise than they should be"
    shared = _trained_tensors_of_teacher(trial.model, teacher_of(trial))
    trial = with_made_up_completions(trial)
    if shared:
        return _measure_shared_teacher(trial, shared, unit)
    passes, calls = _passes_of_batches(trial)
    counts = _count_predictions(passes)
    noisy_calls = sum(call.is_noisy for call in calls)
    calls_with_other_tokens = _calls_with_other_tokens(calls, passes)
    evidence: dict[str, Any] = {
        "in the loss": counts.in_loss,
        "looked at": counts.compared,
        "other ways": counts.other_ways,
        "away": counts.away,
        "beside": counts.beside,
        "missing": counts.missing,
        "beside places": _places_beside(trial, passes),
        "noisy": noisy_calls,
        "calls": len(calls),
        "other tokens": calls_with_other_tokens,
        "shared": 0,
        "beta": float(getattr(trial.trainer, "beta", 0.0)),
    }
    share = max(counts.largest_share, float(bool(noisy_calls or calls_with_other_tokens)))
    return Measured(share, TOLERANCE, unit, evidence)


def _measure_shared_teacher(trial: Trial, shared: int, unit: str) -> Measured:
    """A student that teaches itself learns nothing, unless the teacher is told more (SDFT, SDPO). Raises Untested."""
    batch = trial.batches[0]
    ids = batch.get("input_ids")
    if ids is None and "completion_ids" in batch:
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    calls = teacher_calls_of_loss(trial, batch)
    if ids is None or not calls or any(one.ids is None or not one.ids.equal(ids) for one in calls):
        raise Untested("the student teaches itself, with other tokens")
    return Measured(1.0, TOLERANCE, unit, {"shared": shared})


def _passes_of_batches(trial: Trial) -> tuple[list[tuple[int, DistilledPass]], list[TeacherCall]]:
    """The student's passes over the first batches, each with its batch's number, and the teacher's. Raises Untested."""
    passes: list[tuple[int, DistilledPass]] = []
    calls: list[TeacherCall] = []
    for number, batch in enumerate(trial.batches[:MAX_BATCHES]):
        passes_of_batch, calls_of_batch = distilled_passes(trial, batch)
        passes += [(number, one) for one in passes_of_batch]
        calls += calls_of_batch
    return passes, calls


def _count_predictions(passes: list[tuple[int, DistilledPass]]) -> _PredictionCounts:
    """Count what the loss does with each prediction. Raises Untested where no way explains too many of them."""
    ways = Counter(way for _, one in passes for way in one.ways)
    compared = sum(ways.values())
    if not compared or ways[None] > MAX_UNEXPLAINED * compared:
        raise Untested(
            "the loss is no divergence between the whole distributions of student and teacher that is known here"
        )
    return _PredictionCounts(
        in_loss=sum(int(one.heard.sum()) for _, one in passes),
        compared=compared,
        other_ways={str(way): count for way, count in ways.items() if way not in (AS_SET, None)},
        away=sum(_count_moved_away(one) for _, one in passes),
        beside=sum(int((one.heard & ~one.expected).sum()) for _, one in passes),
        missing=sum(one.missing for _, one in passes),
    )


def _count_moved_away(one: DistilledPass) -> int:
    """The predictions of a pass that are moved away from the teacher's, of those whose way is known."""
    weights = one.weights.tolist()
    return sum(
        way is not None and weight < 0 for way, weight in zip(one.ways, weights, strict=True)
    )


def _places_beside(trial: Trial, passes: list[tuple[int, DistilledPass]]) -> list[dict[str, Any]]:
    """Some predictions that are in the loss and should not be, described."""
    spell = getattr(trial.tokenizer, "decode", str)
    shown: list[dict[str, Any]] = []
    for number, one in passes:
        for line, at in (one.heard & ~one.expected).nonzero().tolist()[:MAX_SHOWN_PLACES]:
            follows = one.ids[line, at + 1 : at + 2].tolist()
            shown.append(
                {
                    "batch": number,
                    "line": line,
                    "position": at + 1,
                    "token": spell(follows) if follows else "",
                }
            )
    return shown[:MAX_SHOWN_PLACES]


def _calls_with_other_tokens(
    calls: list[TeacherCall], passes: list[tuple[int, DistilledPass]]
) -> int:
    """Passes of the teacher over other completions than the student's.

    Raises Untested where the completions are the same and the prompts are not: the teacher is told more then, as in a
    distillation of a prompt, and what it says at each token is not known here.
    """
    ids_of_student = [one.ids for _, one in passes]
    others = _ids_unlike(ids_of_student, calls)
    if not others:
        return 0
    completions = [completion for _, one in passes for completion in _completions_of(one)]
    lines = [line for ids in others for line in ids.tolist()]
    if all(_holds_any(line, completions) for line in lines):
        raise Untested("the teacher is given other prompts than the student")
    return len(others)


def _ids_unlike(ids_of_student: list[torch.Tensor], calls: list[TeacherCall]) -> list[torch.Tensor]:
    """The ids of the teacher's passes that are not those of a pass of the student."""
    ids_of_calls = [call.ids for call in calls if call.ids is not None]
    return [ids for ids in ids_of_calls if not _is_one_of(ids, ids_of_student)]


def _is_one_of(ids: torch.Tensor, others: list[torch.Tensor]) -> bool:
    """Are these the ids of one of the others?"""
    return any(ids.shape == other.shape and bool((ids == other).all()) for other in others)


def _completions_of(one: DistilledPass) -> list[list[int]]:
    """The tokens of each line whose predictions belong into the loss."""
    return [
        ids[1:][expected[:-1]].tolist() for ids, expected in zip(one.ids, one.expected, strict=True)
    ]


def _holds_any(line: list[int], completions: list[list[int]]) -> bool:
    """Does a line hold one of these completions?"""
    return any(_holds(line, completion) for completion in completions)


def _holds(line: list[int], part: list[int]) -> bool:
    """Does a line hold these tokens in a row?"""
    return any(
        line[start : start + len(part)] == part for start in range(len(line) - len(part) + 1)
    )


def _trained_tensors_of_teacher(student: torch.nn.Module, teacher: torch.nn.Module) -> int:
    """Tensors of the teacher that are trained with the student: they share its memory."""
    trained = {p.data_ptr() for p in student.parameters() if p.requires_grad and p.numel()}
    return sum(p.data_ptr() in trained for p in teacher.parameters() if p.numel())
