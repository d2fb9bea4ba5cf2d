"""Estimates settings of a preference run (DPO) from its curves, such as the label smoothing.

Trainers log margins and losses, not the settings that made them. The loss is a known function of the margin, so the
label smoothing is the slope between the two, with a standard error that says whether it may be named.
"""

from __future__ import annotations

import math

import numpy as np

from truetune.logs.run_log import Curve, RunLog

MIN_POINTS = 20
"""Chosen, not measured: the standard error below decides, and needs some degrees of freedom to be one itself"""
MAX_STANDARD_ERROR = 0.05
"""Standard error of the label smoothing by regression from which it is not said: 0 and 0.5 are ten of them apart"""


def estimate_label_smoothing(margins: Curve, loss: Curve) -> float | None:
    """Label smoothing by regression of the loss on the margin at the same steps; None where it is not sure.

    loss = -(1 - e) log sigmoid(m) - e log sigmoid(-m), so d loss / d m = e - 1/2 at m = 0.
    """
    step, of_margin, of_loss = np.intersect1d(margins.step, loss.step, return_indices=True)
    if step.size < MIN_POINTS:
        return None
    margin, value = margins.value[of_margin], loss.value[of_loss]
    spread = float(((margin - margin.mean()) ** 2).sum())
    if spread == 0:
        return None
    slope = float(((margin - margin.mean()) * (value - value.mean())).sum()) / spread
    rest = value - value.mean() - slope * (margin - margin.mean())
    error = math.sqrt(float((rest**2).sum()) / (step.size - 2) / spread)
    return 0.5 + slope if error < MAX_STANDARD_ERROR else None


def all_logps_are_zero(log: RunLog) -> bool:
    """Are all log-probabilities of both answers exactly 0? No answer of any length has a
    probability of 1.
    """
    sides = [log.curve(f"logps/{side}") for side in ("chosen", "rejected")]
    return all(bool(side) and not side.value.any() for side in sides)
