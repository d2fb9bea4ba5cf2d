"""Intervals and tests: values known from elsewhere, and what must hold for any numbers."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truetune.evaluation.confidence_intervals_over_rows import (
    bootstrap_mean,
    mcnemar_p,
    paired_difference,
    wilson_interval,
)


@pytest.mark.parametrize(
    ("good", "of", "low", "high"),
    [
        # Newcombe 1998, Statistics in Medicine 17:857, table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 0.8389, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson(good: int, of: int, low: float, high: float) -> None:
    assert wilson_interval(good, of) == pytest.approx((low, high), abs=5e-5)


def test_wilson_refuses_more_than_there_are() -> None:
    with pytest.raises(ValueError, match="3 of 2"):
        wilson_interval(3, 2)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_binomial_test(a: int, b: int) -> None:
    tail = sum(comb(a + b, k) for k in range(min(a, b) + 1)) / 2 ** (a + b)
    assert mcnemar_p(a, b) == pytest.approx(min(1.0, 2 * tail))
    assert mcnemar_p(a, b) == mcnemar_p(b, a)


def test_mcnemar_of_many() -> None:
    # scipy 1.17.1: binomtest(40_000, 81_000).pvalue
    assert mcnemar_p(40_000, 41_000) == pytest.approx(0.000447822, rel=1e-4)


def test_bootstrap_of_one_row_has_no_interval() -> None:
    assert bootstrap_mean([6.0], [3]) == (2.0, None, None)
    assert bootstrap_mean([6.0, 0.0], [3, 0]) == (2.0, None, None)
    with pytest.raises(ValueError, match="no row"):
        bootstrap_mean([], [])


def test_what_is_no_number_has_no_interval() -> None:
    assert bootstrap_mean([1.0, np.inf, 2.0]) == (np.inf, None, None)
    difference, low, high, p = paired_difference([1.0, np.nan], [1.0, 2.0])
    assert np.isnan([difference, p]).all()
    assert low is high is None


def test_bootstrap_weighs_tokens_and_not_rows() -> None:
    found = bootstrap_mean([10.0, 1.0], [1, 99])
    assert found.mean == pytest.approx(0.11)


def test_bootstrap_agrees_with_scipy() -> None:
    """BCa of scipy 1.17.1 (99,999 rounds) for the ratio of sums of these 20 rows."""
    random = np.random.default_rng(5)
    counts = random.integers(5, 60, 20)
    sums = counts * random.gamma(3, 0.4, 20)
    found = bootstrap_mean(sums, counts, rounds=20_000)
    assert found == pytest.approx((0.80446, 0.62591, 0.95650), abs=0.005)


def test_bootstrap_covers_the_truth() -> None:
    random = np.random.default_rng(1)
    covered = 0
    for trial in range(150):
        counts = random.integers(5, 50, 40)
        low, high = bootstrap_mean(counts * random.gamma(2, 1, 40), counts, seed=trial, rounds=400)[
            1:
        ]
        assert low is not None
        assert high is not None
        covered += low <= 2 <= high
    assert 130 <= covered <= 149


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 40)), min_size=2, max_size=12),
    st.integers(1, 9),
)
def test_bootstrap_scales(rows: list[tuple[int, int]], scale: int) -> None:
    values, counts = (np.array(column, dtype=np.float64) for column in zip(*rows, strict=True))
    plain, scaled = (bootstrap_mean(by * values, counts, rounds=100) for by in (1, scale))
    assert plain.low is not None
    assert plain.high is not None
    assert plain.low <= plain.high
    assert scaled == pytest.approx([scale * part for part in (plain.mean, plain.low, plain.high)])


def test_a_constant_has_an_interval_of_no_width() -> None:
    assert bootstrap_mean([2.0, 4.0, 6.0], [1, 2, 3]) == (2.0, 2.0, 2.0)


def test_the_same_seed_gives_the_same() -> None:
    values = np.random.default_rng(3).normal(size=40)
    assert (
        bootstrap_mean(values, seed=3)
        == bootstrap_mean(values, seed=3)
        != bootstrap_mean(values, seed=4)
    )


def test_paired_tries_all_signs_of_few_rows() -> None:
    assert paired_difference([1, 1, 1, 1, 1], [2, 3, 2, 3, 2]).p == pytest.approx(2 / 32)
    assert paired_difference([1.0], [4.0]) == (-3.0, None, None, 1.0)
    same = paired_difference([1, 2, 3], [1, 2, 3])
    assert (same.difference, same.p) == (0.0, 1.0)


def test_paired_agrees_with_scipy() -> None:
    """permutation_test of scipy 1.17.1, 99,999 rounds: 0.00486."""
    random = np.random.default_rng(5)
    counts = random.integers(5, 60, 20)
    sums = counts * random.gamma(3, 0.4, 20)
    assert paired_difference(sums, 1.1 * counts, rounds=20_000).p == pytest.approx(
        0.00486, abs=0.0015
    )


def test_paired_of_many_rows() -> None:
    random = np.random.default_rng(0)
    base = random.gamma(2, 1, 60)
    better = paired_difference(base - 0.1 + random.normal(0, 0.05, 60), base)
    assert better.p < 0.001
    assert better.high is not None
    assert better.high < 0
    assert better.difference == pytest.approx(-0.1, abs=0.02)
    chance = paired_difference(base + random.normal(0, 0.05, 60), base)
    assert chance.p > 0.05


def test_paired_finds_a_difference_that_unpaired_intervals_hide() -> None:
    base = np.array([0.5, 4.0, 1.0, 9.0, 2.0, 6.0, 0.2, 3.0, 5.0, 7.0])
    mine, other = bootstrap_mean(base - 0.1), bootstrap_mean(base)
    assert mine.high is not None
    assert other.low is not None
    assert mine.high > other.low
    assert paired_difference(base - 0.1, base).p == pytest.approx(2 / 1024)


def test_under_no_difference_p_is_even() -> None:
    random = np.random.default_rng(2)
    small = sum(
        paired_difference(*random.normal(size=(2, 9)), rounds=50).p < 0.1 for _ in range(200)
    )
    assert 8 <= small <= 34
