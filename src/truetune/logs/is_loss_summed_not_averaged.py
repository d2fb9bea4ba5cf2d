"""Tells whether a training loss is a sum and no mean, by comparison with the run's evaluation loss.

A loss that is added up over accumulated batches is a whole multiple of the mean. Overfitting and dropout make other
ratios, and none that stays at a whole number while both losses fall. So three things must hold: enough evaluations,
losses that fall, and a ratio that is near the same whole number at each of them. Where the log says over how many
batches gradients were accumulated, and the ratio is that number, fewer evaluations are enough, and no fall is needed.
"""

from __future__ import annotations

import re

import numpy as np

from truetune.logs.run_log import RunLog

MIN_EVALUATIONS = 4
"""Evaluations beside a logged loss, from which their ratio is judged. The second half of them
counts: of fewer it would be a single ratio, which may be near a whole number by chance; more would
leave out short runs"""
RATIO_TOLERANCE = 0.08
"""How far the median ratio may be from a whole number: 5.02 / 0.304 = 16.5 of a published run with 16 accumulated
batches; and how far each ratio may be from the median, as a distance that shrinks is no factor"""
# Chosen, not measured: at a quarter, a ratio of 3.4 with 4 batches would pass, and may be two kinds of rows.
MAX_GAP_OF_KNOWN_COUNT = 0.12
"""How far the ratio may be below the number of batches that is known: rows that are trained have the lower loss"""
MAX_REMAINING_SHARE = 0.8
"""The losses must fall to this share, so that a constant factor is told from a constant distance"""
MIN_KNOWN_COUNT = 4
"""Accumulated batches that the log names, from which a ratio of that number is no distance between two kinds of rows"""
MIN_EVALUATIONS_OF_KNOWN_COUNT = 2
LOSS_NAME = re.compile(r"loss(?:[_/ -]?\d+)?$", re.I)
"""How the name of a loss ends: `ploss_3`, `train/aux_loss`"""
MIN_PARTS_RECORDS = 3
"""Records of another loss, from which it may be a summand: its first three must lie below the sum.
With fewer, a loss may do so by chance"""


def count_of_means_added_up_in_loss(log: RunLog) -> float | None:
    """About how many means were added up to make the logged loss; None if that is not shown."""
    loss, evaluated = log.curve("loss").finite(), log.curve("eval_loss").finite()
    if not log.is_loss_of_token_prediction or not loss:
        return None
    comparable = (evaluated.step >= loss.step[0]) & (evaluated.value > 0)
    if comparable.sum() < evaluations_needed_to_judge_loss_ratio(log):
        return None
    step, value = evaluated.step[comparable], evaluated.value[comparable]
    if is_accumulation_unknown(log) and value[-1] > MAX_REMAINING_SHARE * value[0]:
        return None
    # A logged loss is the mean over many steps, and lags behind while the loss falls fast: the second half counts.
    ratios = (loss.at(step) / value)[step.size // 2 :]
    times = float(np.median(ratios))
    gap = RATIO_TOLERANCE if is_accumulation_unknown(log) else MAX_GAP_OF_KNOWN_COUNT
    whole = [
        count
        for count in _possible_accumulation_counts(log, times)
        if (1 - gap) * count <= times <= (1 + RATIO_TOLERANCE) * count
    ]
    is_constant = np.abs(ratios - times).max() <= RATIO_TOLERANCE * times
    return times if whole and is_constant else None


def is_accumulation_unknown(log: RunLog) -> bool:
    """Does the log not say that gradients were accumulated over several batches?"""
    return (_accumulated_batches(log) or 0) < MIN_KNOWN_COUNT


def evaluations_needed_to_judge_loss_ratio(log: RunLog) -> int:
    """The evaluations beside a logged loss from which their ratio is judged."""
    return MIN_EVALUATIONS if is_accumulation_unknown(log) else MIN_EVALUATIONS_OF_KNOWN_COUNT


def parts_of_training_loss(log: RunLog) -> tuple[str, ...]:
    """The names of the losses that are logged beside the training loss and are each smaller: it is made of them."""
    loss = log.curve("loss").finite()
    if not loss:
        return ()
    parts = []
    for name, curve in log.curves.items():
        if name == "loss" or LOSS_NAME.search(name) is None:
            continue
        if name.startswith(("eval", "test", "valid")):
            continue
        part = curve.finite()
        # a loss that begins later than the training's is of another phase, and no summand of its first records
        if part.step.size < MIN_PARTS_RECORDS or part.step[0] > loss.step[0]:
            continue
        if bool((part.value[:3] < loss.at(part.step[:3])).all()):
            parts.append(name)
    # one smaller loss may be anything (a loss without its penalty); a sum has two summands at least
    return tuple(parts) if len(parts) >= 2 else ()


def _possible_accumulation_counts(log: RunLog, times: float) -> tuple[float, ...]:
    """Whole numbers of batches that may have been added up: by the settings, where the log knows them."""
    accumulated = _accumulated_batches(log)
    if accumulated is None:
        counts: tuple[float, ...] = (round(times),)
    else:
        counts = (accumulated, accumulated * (log.fact_as_number("devices") or 1))
    return tuple(count for count in counts if count >= 2)


def _accumulated_batches(log: RunLog) -> float | None:
    """The batches of one step, by the log, by what the trainer prints first or by a file beside; else None."""
    fact = log.fact_as_number("gradient_accumulation_steps")
    if fact is None and log.output is not None:
        fact = log.output.settings.accumulation
    if fact is not None:
        return fact
    beside = log.files_beside.setting("gradient_accumulation_steps")
    is_number = beside is not None and type(beside.value) is int
    return float(beside.value) if beside is not None and is_number else None
