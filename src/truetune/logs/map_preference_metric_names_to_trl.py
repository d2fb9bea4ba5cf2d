"""Maps the names that own loops and LLaMA-Factory give to the metrics of a preference run (DPO and
the like) to those of trl.

A loop prints `loss`, `margin` and `acc`, and no word of rewards. `acc` alone may be of anything, so names count only
where the log proves what was trained: a chosen side beside a rejected one, or a loss that is -log sigmoid of the
margin. The trade-off: a margin that is printed without beta is accepted as long as the loss may be of it; it is then
larger than the reward margin, and a rule that looks for margins that stay small is silent.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Iterable, Mapping

import numpy as np

Points = tuple["array[float]", "array[float]"]
"""Steps and values of one quantity"""

BEFORE = r"^(?:(?:dpo|rewards?|pref(?:erence)?s?|implicit|mean|avg|policy)[ _/.-]?)*"
BEHIND = r"(?:[ _/.-]?(?:rewards?|mean|avg))*$"
MARGIN_NAME = re.compile(BEFORE + r"margins?" + BEHIND, re.IGNORECASE)
SIDE_NAMES = tuple(
    (re.compile(before + side + behind, re.IGNORECASE), f"{group}/{side}")
    for side in ("chosen", "rejected")
    for group, before, behind in (
        ("logps", r"^(?:policy[ _/.-]?)?(?:log_?p\w{0,5}|logprobs?)[ _/.-]?", "$"),
        ("logps", r"^(?:policy[ _/.-]?)?", r"[ _/.-]?(?:log_?p\w{0,5}|logprobs?)$"),
        ("rewards", r"^(?:r|rewards?)[ _/.-]?", "$"),
        ("rewards", "^", r"[ _/.-]?(?:r|rewards?)$"),
    )
)
"""How the rewards and log-probabilities of a side are called -> what trl calls them"""
ACCURACY_NAME = re.compile(BEFORE + r"(?:acc(?:urac(?:y|ies))?|win_?rate)" + BEHIND, re.IGNORECASE)
LOSS_NAME = re.compile(r"^(?:dpo|ipo|orpo|simpo|pref(?:erence)?)[ _/.-]?loss$", re.IGNORECASE)
LLAMA_FACTORY_KEYS = frozenset(("current_steps", "percentage", "elapsed_time"))
"""Keys of LLaMA-Factory's trainer_log.jsonl, whose `accuracy` is that of the rewards, and of nothing else"""
MAX_FIRST_REWARD = 1.0
"""Size of the first reward: policy and reference are the same at first. Log-probabilities of answers are far larger"""
MIN_POINTS = 5
"""Records from which a loss may be compared with the margin. Chosen, not measured"""
MAX_DIFFERENCE = 0.1
"""Nats by which the median loss of the first records may differ from -log sigmoid(margin). Measured on 24 records of
8 pairs: below 0.01; a mean over pairs that are far apart is larger, which comes later in a run"""
ROUNDING = 0.03
"""Nats by which a loss may lie below -log sigmoid(margin): means never do (it is convex), rounded figures may"""
MIN_SHARE = 0.9
"""Of the records for which that must hold"""


def rename_llama_factory_keys(record: Mapping[str, object]) -> Mapping[str, object]:
    """The record of a trainer_log.jsonl with the name that trl gives to its accuracy; any other as it is."""
    if "accuracy" not in record or not record.keys() >= LLAMA_FACTORY_KEYS:
        return record
    return {
        "rewards/accuracies" if name == "accuracy" else name: value
        for name, value in record.items()
    }


def trl_names_of_preference_metrics(curves: Mapping[str, Points]) -> dict[str, str]:
    """trl's names for the curves of a preference run, by their own names; empty for any other run.

    Args:
        curves: the quantities that one process logged.
    """
    sides = _trl_names_of_sides(curves) or _trl_names_of_bare_sides(curves)
    loss = "loss" if "loss" in curves else _first_matching_name(curves, LOSS_NAME)
    margin = _first_matching_name(curves, MARGIN_NAME)
    fits = bool(loss and margin) and _may_be_loss_of_margin(curves[loss], curves[margin])
    if not fits and not _has_both_sides(sides.values()):
        return {}
    named = dict(sides)
    if fits:
        named[margin] = "rewards/margins"
    accuracy = _first_matching_name(curves, ACCURACY_NAME)
    if accuracy:
        named[accuracy] = "rewards/accuracies"
    if loss:
        named[loss] = "loss"
    # A name that the log has already stands for what its trainer means by it.
    return {name: ours for name, ours in named.items() if ours not in curves}


def _has_both_sides(names: Collection[str]) -> bool:
    """Are the rewards or the log-probabilities of both sides among trl's names?"""
    return any(
        f"{group}/chosen" in names and f"{group}/rejected" in names
        for group in ("rewards", "logps")
    )


def _trl_names_of_sides(names: Iterable[str]) -> dict[str, str]:
    """trl's names for the rewards and log-probabilities of both sides, by those of the log."""
    trl_names: dict[str, str] = {}
    for name in names:
        ours = next((ours for pattern, ours in SIDE_NAMES if pattern.match(name)), None)
        if ours is not None and ours not in trl_names.values():
            trl_names[name] = ours
    return trl_names


def _trl_names_of_bare_sides(curves: Mapping[str, Points]) -> dict[str, str]:
    """trl's names for `chosen` and `rejected`, which may be rewards or log-probabilities: their
    first values tell.
    """
    sides = {name.lower(): name for name in curves if name.lower() in ("chosen", "rejected")}
    if len(sides) < 2:
        return {}
    are_rewards = all(abs(curves[name][1][0]) < MAX_FIRST_REWARD for name in sides.values())
    group = "rewards" if are_rewards else "logps"
    return {name: f"{group}/{side}" for side, name in sides.items()}


def _first_matching_name(names: Iterable[str], pattern: re.Pattern[str]) -> str:
    """The first name that fits a pattern; empty where none does."""
    return next((name for name in names if pattern.match(name)), "")


def _may_be_loss_of_margin(loss: Points, margin: Points) -> bool:
    """May the loss be the mean of -log sigmoid(margin) over pairs with this mean margin?"""
    _, of_loss, of_margin = np.intersect1d(
        np.array(loss[0]), np.array(margin[0]), return_indices=True
    )
    values, margins = np.array(loss[1])[of_loss], np.array(margin[1])[of_margin]
    finite = np.isfinite(values) & np.isfinite(margins)
    values, margins = values[finite], margins[finite]
    if values.size < MIN_POINTS or not values.any():
        return False
    least = np.logaddexp(0.0, -margins)
    first = slice(0, max(MIN_POINTS, values.size // 4))
    begins_equal = float(np.median(np.abs(values - least)[first])) < MAX_DIFFERENCE
    return begins_equal and float(np.mean(values > least - ROUNDING)) >= MIN_SHARE
