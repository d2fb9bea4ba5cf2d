"""A distillation draws the student's predictions of a completion to the teacher's of the same tokens, and no others."""

from __future__ import annotations

from collections import Counter
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


def measure_law(trial: Trial) -> Measured:
    """Share of the predictions that are compared otherwise, or in the loss where they should not be."""
    unit = "share of predictions that are compared with the teacher's otherwise than they should be"
    shared = _trained_tensors_of_teacher(trial.model, teacher_of(trial))
    trial = with_made_up_completions(trial)
    if shared:
        return _measure_shared_teacher(trial, shared, unit)
    passes: list[tuple[int, DistilledPass]] = []
    calls: list[TeacherCall] = []
    for number, batch in enumerate(trial.batches[:MAX_BATCHES]):
        made, called = distilled_passes(trial, batch)
        passes += [(number, one) for one in made]
        calls += called
    ways = Counter(way for _, one in passes for way in one.ways)
    looked_at = sum(ways.values())
    if not looked_at or ways[None] > MAX_UNEXPLAINED * looked_at:
        raise Untested(
            "the loss is no divergence between the whole distributions of student and teacher that is known here"
        )
    away = sum(
        way is not None and weight < 0
        for _, one in passes
        for way, weight in zip(one.ways, one.weights.tolist(), strict=True)
    )
    beside = sum(int((one.heard & ~one.expected).sum()) for _, one in passes)
    missing = sum(one.missing for _, one in passes)
    in_loss = sum(int(one.heard.sum()) for _, one in passes)
    others = {str(way): count for way, count in ways.items() if way not in (AS_SET, None)}
    evidence: dict[str, Any] = {
        "in the loss": in_loss,
        "looked at": looked_at,
        "other ways": others,
        "away": away,
        "beside": beside,
        "missing": missing,
        "beside places": _places_beside(trial, passes),
        "noisy": sum(call.is_noisy for call in calls),
        "calls": len(calls),
        "other tokens": _calls_with_other_tokens(calls, passes),
        "shared": 0,
        "beta": float(getattr(trial.trainer, "beta", 0.0)),
    }
    faults = ("noisy", "other tokens")
    share = max(
        sum(others.values()) / looked_at,
        away / looked_at,
        (beside + missing) / max(1, in_loss + missing),
        float(any(evidence[name] for name in faults)),
    )
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
    known = [one.ids for _, one in passes]
    others = [
        call.ids
        for call in calls
        if call.ids is not None
        and not any(call.ids.shape == ids.shape and bool((call.ids == ids).all()) for ids in known)
    ]
    completions = [
        one.ids[line, 1:][one.expected[line, :-1]].tolist()
        for _, one in passes
        for line in range(len(one.ids))
    ]
    wrong = sum(
        not any(_holds(line, completion) for completion in completions)
        for ids in others
        for line in ids.tolist()
    )
    if others and not wrong:
        raise Untested("the teacher is given other prompts than the student")
    return len(others)


def _holds(line: list[int], part: list[int]) -> bool:
    """Does a line hold these tokens in a row?"""
    return any(
        line[start : start + len(part)] == part for start in range(len(line) - len(part) + 1)
    )


def _trained_tensors_of_teacher(student: torch.nn.Module, teacher: torch.nn.Module) -> int:
    """Tensors of the teacher that are trained with the student: they share its memory."""
    trained = {p.data_ptr() for p in student.parameters() if p.requires_grad and p.numel()}
    return sum(p.data_ptr() in trained for p in teacher.parameters() if p.numel())
