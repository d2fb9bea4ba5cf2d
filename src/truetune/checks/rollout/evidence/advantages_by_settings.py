"""Advantages as the settings of a rollout say, computed from its rewards; and other forms that advantages may have.

The forms are those of GRPO (Shao et al. 2024, arXiv 2402.03300, section 4.1) with the spread of Dr. GRPO (Liu et al.
2025, arXiv 2503.20783) and of a batch, and of RLOO (Ahmadian et al. 2024, arXiv 2402.14740). A completion that no
function scored has the advantage 0, and is in no mean.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from truetune.probe.rollout_step import RolloutStep

Floats = NDArray[np.floating]
OF_OTHER_PROCESS = "they are those of another process's completions"
# TRL adds it to the spread, lest a group of equal rewards is divided by 0; verl and SkyRL add 1e-6, OpenRLHF 1e-9.
SPREAD_FLOOR = 1e-4
# Advantages are of the size of 1. float32 means and spreads of some hundred rewards differ by 1e-6, and a spread beside
# SPREAD_FLOOR multiplies that by up to 1e4 only where all rewards are nearly equal.
MAX_DIFFERENCE = 2e-3
"""Up to which two advantages are the same, beside their size where that is above 1"""


def weighted_rewards(step: RolloutStep) -> Floats | None:
    """(completions of all processes,) sums of the functions' rewards by their weights, less a penalty where there is
    one; NaN where no function gave one.

    None where the rewards are not known, or not in whole groups.
    """
    if step.rewards is None or step.rewards.size == 0:
        return None
    if len(step.rewards) % step.settings.num_generations:
        return None
    weights = np.asarray(step.settings.reward_weights or np.ones(step.rewards.shape[1]))
    if len(weights) != step.rewards.shape[1]:
        return None
    sums = np.nansum(step.rewards.astype(np.float64) * weights, axis=1)
    sums[np.isnan(step.rewards).all(axis=1)] = np.nan
    return np.asarray(sums if step.reward_penalty is None else sums - step.reward_penalty)


def expected_advantages(step: RolloutStep) -> Floats | None:
    """(completions of this process,) advantages as the settings say; None where they can't be computed."""
    if step.settings.unknown_to_advantages:
        return None
    form = _form_of_settings(step)
    return None if form is None else _of_this_process(step, form)


def differing_advantages(step: RolloutStep, expected: Floats) -> NDArray[np.bool_]:
    """(completions of this process,) whose advantages are others than expected, beyond rounding."""
    allowed = MAX_DIFFERENCE * np.maximum(1.0, np.abs(expected)) + _rounding(step)
    # Other stacks add less than TRL to a spread that may be small itself.
    allowed = allowed + np.abs(expected) * _share_of_floor(step)
    return np.asarray(np.abs(step.advantages - expected) > allowed)


def _rounding(step: RolloutStep) -> Floats:
    """(completions of this process,) what float32 may make of rewards that are large beside their spread."""
    rewards = weighted_rewards(step)
    if rewards is None:
        return np.zeros(step.rows)
    largest = float(np.nanmax(np.abs(rewards))) if np.isfinite(rewards).any() else 0.0
    grouped = np.nan_to_num(rewards, posinf=0.0, neginf=0.0).reshape(
        -1, step.settings.num_generations
    )
    spread = grouped.std(axis=1, keepdims=True) + SPREAD_FLOOR
    # Some roundings: of a mean, of a difference and of a spread.
    error = 4 * np.finfo(np.float32).eps * largest / spread
    own = np.broadcast_to(error, grouped.shape).ravel()
    return np.asarray(own[step.first_row : step.first_row + step.rows])


def _share_of_floor(step: RolloutStep) -> Floats:
    """(completions of this process,) how much larger an advantage is where nothing is added to the spread, beside its
    size; 0 where no spread divides it, or where it is 0."""
    rewards = weighted_rewards(step)
    if rewards is None or step.settings.scale_rewards != "group":
        return np.zeros(step.rows)
    grouped = np.nan_to_num(rewards, posinf=0.0, neginf=0.0).reshape(
        -1, step.settings.num_generations
    )
    spread = grouped.std(axis=1, keepdims=True)
    share = np.divide(SPREAD_FLOOR, spread, out=np.zeros_like(spread), where=spread > 0)
    own = np.broadcast_to(share, grouped.shape).ravel()
    return np.asarray(own[step.first_row : step.first_row + step.rows])


def rewards_of_other_process(step: RolloutStep) -> Floats | None:
    """(completions of this process,) what the functions returned, where the rewards at their rows are others and those
    of another process's rows are these; None elsewhere.

    Rewards that a trainer shapes differ as well, and are at no other place.
    """
    returned = _returned_rewards(step)
    if returned is None or step.rewards is None or len(step.rewards) % step.rows:
        return None
    by_process = step.rewards.reshape(-1, *returned.shape)
    own = step.first_row // step.rows
    fits = [bool(np.allclose(part, returned, rtol=1e-5)) for part in by_process]
    if own >= len(fits) or fits[own] or not any(fits):
        return None
    return np.asarray(returned.sum(axis=1))


def _returned_rewards(step: RolloutStep) -> Floats | None:
    """(completions of this process, functions) as each function returned them; None where one was not called once, or
    gave no number."""
    values = [call.values for call in step.reward_calls]
    names = [call.name for call in step.reward_calls]
    if (
        step.rewards is None
        or names != list(step.reward_names)
        or None in {x for v in values for x in v}
    ):
        return None
    table = np.array(values, np.float64).T
    is_whole = table.shape == (step.rows, step.rewards.shape[1]) and bool(np.isfinite(table).all())
    return table if is_whole else None


def name_form_of_advantages(step: RolloutStep) -> str:
    """What the advantages are, in words, where they are of another known form; empty where they are of none.

    Forms that cannot be told apart from the expected ones by these rewards name nothing.
    """
    for words, form in _other_forms(step):
        values = _of_this_process(step, form)
        if values is not None and not differing_advantages(step, values).any():
            return words
    return OF_OTHER_PROCESS if _are_of_other_process(step) else ""


def _are_of_other_process(step: RolloutStep) -> bool:
    """Are the advantages those of the rows of another process?"""
    processes = 0 if step.rewards is None else len(step.rewards) // step.rows
    for process in range(processes):
        other = replace(step, first_row=process * step.rows)
        expected = expected_advantages(other)
        if expected is not None and not differing_advantages(other, expected).any():
            return True
    return False


def _form_of_settings(step: RolloutStep) -> Callable[[Floats], Floats] | None:
    """The function of rewards that the settings name."""
    groups = step.settings.num_generations
    if step.settings.baseline == "leave-one-out":
        return lambda rewards: _leave_one_out(rewards, groups)
    scale = step.settings.scale_rewards
    if scale not in ("group", "batch", "none"):
        return None
    return lambda rewards: _centred_and_scaled(rewards, groups, scale)


def _other_forms(step: RolloutStep) -> Iterator[tuple[str, Callable[[Floats], Floats]]]:
    """Other forms, each in words: what they are, and not why."""
    groups = step.settings.num_generations
    form = _form_of_settings(step)
    if form is not None:
        yield "they have the opposite sign", lambda rewards: -form(rewards)
        yield (
            "each group is made of completions that are apart (row 1 with row"
            f" {1 + _group_count(step)}, ...), which answer different prompts",
            lambda rewards: _interleaved(rewards, groups, form),
        )
    yield "they are the rewards: nothing is subtracted", lambda rewards: rewards
    for scale, words in (
        ("none", "nothing divides them"),
        ("group", "they are divided by the spread of their group"),
        ("batch", "they are divided by the spread of the whole batch"),
    ):
        yield words, partial(_centred_and_scaled, size=groups, scale=scale)
    yield (
        "the mean of the others in the group is subtracted",
        lambda rewards: _leave_one_out(rewards, groups),
    )
    yield (
        "the mean of the whole batch is subtracted, not that of the group",
        lambda rewards: _centred_and_scaled(rewards, len(rewards), "group"),
    )


def _group_count(step: RolloutStep) -> int:
    """Groups of all processes."""
    rows = 0 if step.rewards is None else len(step.rewards)
    return rows // step.settings.num_generations


def _of_this_process(step: RolloutStep, form: Callable[[Floats], Floats]) -> Floats | None:
    """The advantages of a form for the completions of this process."""
    rewards = weighted_rewards(step)
    if rewards is None:
        return None
    with warnings.catch_warnings():
        # The mean of a group that nobody scored is nan, and becomes 0.
        warnings.simplefilter("ignore", RuntimeWarning)
        values = np.nan_to_num(form(rewards), nan=0.0)
    own = values[step.first_row : step.first_row + step.rows]
    return own if len(own) == len(step.advantages) else None


def _centred_and_scaled(rewards: Floats, size: int, scale: str) -> Floats:
    """Rewards less the mean of their group of `size`, divided by the spread of the group, of all, or of nothing."""
    grouped = rewards.reshape(-1, size)
    centred = grouped - np.nanmean(grouped, axis=1, keepdims=True)
    if scale == "group":
        centred = centred / (np.nanstd(grouped, axis=1, ddof=1, keepdims=True) + SPREAD_FLOOR)
    if scale == "batch":
        centred = centred / (np.nanstd(rewards, ddof=1) + SPREAD_FLOOR)
    return np.asarray(centred.ravel())


def _leave_one_out(rewards: Floats, size: int) -> Floats:
    """Rewards less the mean of the others in their group of `size`."""
    grouped = rewards.reshape(-1, size)
    others = (~np.isnan(grouped)).sum(axis=1, keepdims=True) - 1
    sums = np.nansum(grouped, axis=1, keepdims=True)
    return np.asarray((grouped - (sums - grouped) / others).ravel())


def _interleaved(rewards: Floats, size: int, form: Callable[[Floats], Floats]) -> Floats:
    """A form of rewards whose groups are every n-th row, of n groups."""
    count = len(rewards) // size
    regrouped = form(rewards.reshape(size, count).T.ravel())
    return regrouped.reshape(count, size).T.ravel()
