"""Tells from a log whether training moved the weights; a claim that all updates are lost must not
contradict it.
"""

from __future__ import annotations

import numpy as np

from truetune.logs.run_log import Floats, RunLog

CURVES = ("rewards/rejected", "rewards/chosen", "logps/rejected", "logps/chosen", "loss")
"""Figures of the model itself; those of a preference run first, which begin at one value and drift"""
MIN_RECORDS = 8
"""Records below which two ends of a curve are no two groups"""
SPREADS = 3.0
"""Times the spread of both ends by which their means differ. Chosen, not measured: noise does so in one of 400 runs"""
MIN_SHARE = 0.1
"""Of the value at the start, by which a curve has to change: a loss of 2.0 to 1.8"""


def have_weights_moved(log: RunLog) -> bool:
    """Does a figure of the model change over the run, far beyond the noise of its records?"""
    return any(_do_first_and_last_quarter_differ(log.curve(name).finite().value) for name in CURVES)


def _do_first_and_last_quarter_differ(values: Floats) -> bool:
    """Do the first and the last quarter of a curve lie apart?"""
    if values.size < MIN_RECORDS:
        return False
    quarter = values.size // 4
    first, last = values[:quarter], values[-quarter:]
    change = abs(float(np.mean(last)) - float(np.mean(first)))
    spread = max(float(np.std(first)), float(np.std(last)))
    return change > max(SPREADS * spread, MIN_SHARE * abs(float(np.mean(first))))
