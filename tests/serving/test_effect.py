"""The effect that is measured is the one that was put in."""

from __future__ import annotations

import numpy as np
import pytest

from truetune.serving.measure_kept_adapter_effect import measure_effect

CHANCE = np.random.default_rng(0)
BASE = [CHANCE.normal(-3, 1, n).astype(np.float32) for n in (7, 12)]
CHANGE = [CHANCE.normal(0, 1, len(row)).astype(np.float32) for row in BASE]


def scaled(factor: float, noise: float = 0.0) -> list[np.ndarray]:
    return [
        b + factor * c + CHANCE.normal(0, noise, len(b)) for b, c in zip(BASE, CHANGE, strict=True)
    ]


@pytest.mark.parametrize(
    ("factor", "lost"), [(1.0, False), (0.9, False), (0.0, True), (0.5, True), (2.0, True)]
)
def test_the_part_that_is_kept(factor: float, lost: bool) -> None:
    found = measure_effect(BASE, scaled(1.0), scaled(factor))
    assert found.kept == pytest.approx(factor, abs=1e-6)
    assert found.is_lost_or_changed is lost
    assert found.places == 19


def test_another_direction_is_lost() -> None:
    other = [b + c[::-1] for b, c in zip(BASE, CHANGE, strict=True)]
    found = measure_effect(BASE, scaled(1.0), other)
    assert found.cosine < 0.9
    assert found.is_lost_or_changed


def test_no_effect_at_all_is_lost() -> None:
    assert measure_effect(BASE, BASE, BASE).is_lost_or_changed


def test_places_that_are_not_told_are_left_out() -> None:
    told = scaled(1.0)
    told[0][:3] = np.nan
    found = measure_effect(BASE, scaled(1.0), told)
    assert found.places == 16
    assert found.kept == pytest.approx(1)
    assert not found.is_lost_or_changed
