"""Exchanged sides told from unsure scores by the margin."""

from __future__ import annotations

import math

import numpy as np
import pytest

from truetune.checks.pairs.evidence.do_scores_contradict_pairs_at_wide_margins import (
    log_likelihood_ratio_of_exchanged_sides,
)
from truetune.checks.pairs.winner_column_disagrees import MIN_LOG_LIKELIHOOD_RATIO


def _unsure_margins(pairs: int, seed: int) -> list[float]:
    """Margins of pairs whose sides were chosen by another judge, who agrees more the farther the scores are apart."""
    random = np.random.default_rng(seed)
    distances = np.abs(random.normal(0, 1.5, pairs))
    is_against = random.random(pairs) < 1 / (1 + np.exp(0.8 * distances))
    return list(np.where(is_against, -distances, distances))


def _exchanged_margins(pairs: int, seed: int) -> list[float]:
    """Margins of pairs of which a quarter were exchanged, whatever their margin."""
    random = np.random.default_rng(seed)
    distances = np.abs(random.normal(0, 1.5, pairs))
    return list(np.where(random.random(pairs) < 0.25, -distances, distances))


def test_exchanged_sides_are_told_from_unsure_scores() -> None:
    unsure = [
        log_likelihood_ratio_of_exchanged_sides(_unsure_margins(400, seed)) for seed in range(40)
    ]
    exchanged = [
        log_likelihood_ratio_of_exchanged_sides(_exchanged_margins(400, seed)) for seed in range(40)
    ]
    assert sum(odds >= MIN_LOG_LIKELIHOOD_RATIO for odds in unsure) <= 1
    assert sum(odds >= MIN_LOG_LIKELIHOOD_RATIO for odds in exchanged) >= 38


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e4])
def test_the_unit_of_the_scores_changes_nothing(factor: float) -> None:
    margins = _exchanged_margins(200, 1)
    scaled = log_likelihood_ratio_of_exchanged_sides([factor * margin for margin in margins])
    assert math.isclose(scaled, log_likelihood_ratio_of_exchanged_sides(margins), rel_tol=1e-6)


@pytest.mark.parametrize("margins", [[], [1.0, 2.0], [-1.0, -3.0]])
def test_pairs_of_one_mind_tell_nothing(margins: list[float]) -> None:
    assert log_likelihood_ratio_of_exchanged_sides(margins) == 0.0


def test_one_margin_tells_nothing() -> None:
    assert log_likelihood_ratio_of_exchanged_sides([1.0] * 75 + [-1.0] * 25) < 0.1
