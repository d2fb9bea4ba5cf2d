"""Tells which way a metric is better, by the words in its name, and whether it got better.

Trainers log whatever a user's compute_metrics returns, so the name is all that is known. A name with words of both
kinds, or of none, gives no answer: a guess would turn a good run into a finding.
"""

from __future__ import annotations

import re

import numpy as np

from truetune.logs.robust_statistics import noise_sigma
from truetune.logs.run_log import Curve, RunLog

LOWER_WORDS = (
    r"loss|perplexity|ppl|errors?|[wct]er|nll|r?mse|mae|bpb|brier|crps|ece|fid|toxicity|surprisal"
)
HIGHER_WORDS = (
    r"acc|accuracy|accuracies|f1|(sacre)?bleu|rouge([l\d]|lsum)?|rewards?|margins?|exact_match|precision|recall|"
    r"(roc_?)?auc|mcc|pearson|spearman|win_?rate|pass@\d+|ndcg(@\d+)?|mrr(@\d+)?|map(@\d+)?|kappa|meteor|chrf"
)
HELD_OUT_NAME = re.compile(r"(?:eval|val|valid|validation|dev|test)[_/-]|val-core/", re.I)
"""How names of quantities begin that are measured on rows which are not trained on"""
MIN_IMPROVEMENT = 0.01
"""A metric improved where it is better by this share of what it was. Chosen, not measured: smaller changes of an
accuracy are one row in a hundred"""


def lower_is_better(name: str) -> bool | None:
    """Is a lower value of the metric better, by its name? None if the name does not tell."""
    lower, higher = _has_any_word(name, LOWER_WORDS), _has_any_word(name, HIGHER_WORDS)
    return None if lower == higher else lower


def is_share_of_correct(name: str) -> bool:
    """Is the metric a share of what is right, by its name: an accuracy, F1, BLEU, ROUGE, precision
    or recall?
    """
    return _has_any_word(
        name,
        r"acc|accuracy|accuracies|f1|(sacre)?bleu|rouge([l\d]|lsum)?|exact_match|precision|recall",
    )


def is_held_out_score(name: str) -> bool:
    """Is it a metric of an evaluation, other than a loss, of which the name tells which way is better?"""
    if HELD_OUT_NAME.match(name) is None or _has_any_word(name, "loss|margins?|std"):
        return False
    return lower_is_better(name) is not None


def metric_improving_after(log: RunLog, step: float) -> str | None:
    """The first evaluated metric that is no loss and is better at its best after `step` than at it; None where none is.

    It must be better by a hundredth, by more than the noise of its neighbours, and not fall back below where it was.
    """
    for name, logged in log.curves.items():
        # losses are what such a metric is held against, and margins grow in any preference run
        if not name.startswith("eval_") or _has_any_word(name, "loss|margins?"):
            continue
        lower = lower_is_better(name)
        curve = logged.finite()
        if lower is None or curve.step.size < 3 or curve.step[-1] <= step:
            continue
        value = -curve.value if lower else curve.value
        # The best of many noisy values lies above their level by chance: twice the noise is asked for, and the last
        # two must hold half of it.
        then = float(Curve(curve.step, value).at(step))
        later = value[curve.step > step]
        sure = max(MIN_IMPROVEMENT * abs(then), 2 * noise_sigma(value) if later.size > 4 else 0.0)
        if later.max() > then + sure and float(np.median(later[-2:])) > then + sure / 2:
            return name
    return None


def _has_any_word(name: str, words: str) -> bool:
    """Is one of these words in the name, as a word of its own?"""
    return re.search(rf"(?<![a-z\d])({words})(?![a-z\d])", name, re.I) is not None
