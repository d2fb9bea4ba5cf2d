"""The loss teaches each position the token that follows it, where a label says so and nowhere else."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from truetune.probe.laws import Cost
from truetune.probe.measuring.compute_logits import first_batch_with_ids, is_causal
from truetune.probe.measuring.law_input_and_result_types import Measured, Trial, Untested
from truetune.probe.measuring.targets_read_from_loss_gradient import (
    NEXT,
    LearnedTargets,
    learned_targets,
    refuse_losses_without_targets,
)

COST: Cost = "quick"
# Places of each kind that are shown.
MAX_SHOWN_PLACES = 4
# Share of the positions. docs/laws.md has 0 for correct trainers and 0.075 for the least of the faults: half and double
# of it decide alike.
TOLERANCE = 0.001


def measure_law(trial: Trial) -> Measured:
    """Share of the positions with gradient or label that learn another token, or disagree with the labels."""
    if trial.kind == "reward":
        raise Untested("a reward model learns no tokens")
    refuse_models_that_see_ahead(trial)
    passes = learned_targets(trial)
    refuse_losses_without_targets(passes)
    targets = Counter(target for _, pass_ in passes for target in pass_.target)
    looked_at = sum(targets.values())
    others = {name: count for name, count in targets.items() if name not in (NEXT, None)}
    with_gradient = sum(int(p.gradient.sum()) for _, p in passes)
    labelled = sum(int(p.labelled.sum()) for _, p in passes if p.labelled is not None)
    beside = sum(int(_positions_learned_without_label(p).sum()) for _, p in passes)
    silent = sum(p.silent for _, p in passes)
    wrong = max(
        sum(others.values()) / looked_at, beside / max(1, with_gradient), silent / max(1, labelled)
    )
    evidence = {
        "positions with gradient": with_gradient,
        "looked at": looked_at,
        "labelled": labelled,
        "without a label": beside,
        "without gradient": silent,
        "other targets": others,
        "places": _examples_of_faults(trial, passes),
    }
    unit = "share of positions that learn what they should not"
    return Measured(wrong, TOLERANCE, unit, evidence)


def _examples_of_faults(
    trial: Trial, passes: list[tuple[int, LearnedTargets]]
) -> dict[str, list[Any]]:
    """Some places of each kind of fault, described."""
    examples: dict[str, list[Any]] = {
        "other targets": [],
        "without a label": [],
        "without gradient": [],
    }
    for number, pass_ in passes:
        with_other_target = [
            place
            for place, name in zip(pass_.places, pass_.target, strict=True)
            if name not in (NEXT, None)
        ]
        places_of_kinds: tuple[Any, ...] = (
            with_other_target,
            _positions_learned_without_label(pass_).nonzero(),
            pass_.unheard,
        )
        for kind, places in zip(examples, places_of_kinds, strict=True):
            left = MAX_SHOWN_PLACES - len(examples[kind])
            examples[kind] += [
                _describe_position(trial, number, pass_, *place) for place in list(places)[:left]
            ]
    return examples


def refuse_models_that_see_ahead(trial: Trial) -> None:
    """Raises Untested where the model sees the tokens after a position: then it is not taught the next one there."""
    try:
        causal = is_causal(trial, first_batch_with_ids(trial))
    except Untested:
        return  # pairs, or no logits of each token: what the loss teaches is read from its gradient
    if not causal:
        raise Untested(
            "the model sees the tokens after each position (an encoder), so it is not taught the"
            " next one"
        )


def _positions_learned_without_label(pass_: LearnedTargets) -> torch.Tensor:
    """(lines, tokens) bool: positions with a gradient that no label asks for; none where there are no labels."""
    if pass_.labelled is None:
        return torch.zeros_like(pass_.gradient)
    return pass_.gradient & ~pass_.labelled


def _describe_position(
    trial: Trial, number: int, pass_: LearnedTargets, line: torch.Tensor, at: torch.Tensor
) -> dict[str, Any]:
    """Where, and the tokens there: the one read, the next, and the one after it."""
    ids = pass_.ids[line, at : at + 3].tolist()
    spell = getattr(trial.tokenizer, "decode", str)
    return {
        "batch": number,
        "line": int(line),
        "position": int(at),
        "ids": ids,
        "tokens": [spell([id]) for id in ids],
    }
