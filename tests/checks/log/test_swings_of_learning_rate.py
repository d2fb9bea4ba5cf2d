"""Learning rates that fall and climb again and again: found, unless such cycles are planned."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from truetune.checks.diagnose_log import diagnose

STEPS = 360
Schedule = Callable[[int], float]


def _cosine(length: int, floor: float = 0.0) -> Schedule:
    """CosineAnnealingLR, which climbs again behind its `T_max`."""
    return lambda step: floor + (1 - floor) * (1 + np.cos(np.pi * step / length)) / 2


def _restarts(length: int) -> Schedule:
    """CosineAnnealingWarmRestarts: it jumps back to the peak."""
    return lambda step: (1 + np.cos(np.pi * (step % length) / length)) / 2


def _triangles(length: int, floor: float) -> Schedule:
    """CyclicLR: up and down in straight lines."""
    return lambda step: floor + (1 - floor) * abs((step / length) % 2 - 1)


def _restarts_with_warmup(length: int, warmup: int) -> Schedule:
    """Cycles of a short warm-up and a long decay."""

    def factor(step: int) -> float:
        place = step % length
        if place < warmup:
            return place / warmup
        return (1 + np.cos(np.pi * (place - warmup) / (length - warmup))) / 2

    return factor


@pytest.mark.parametrize(
    ("schedule", "logged", "is_found"),
    [
        (_cosine(3), 1, True),
        (_cosine(5), 1, True),
        (_cosine(40, floor=0.1), 1, True),
        (_cosine(40), 10, True),
        (_triangles(6, 0.0), 1, True),
        (_cosine(STEPS), 1, False),
        (_cosine(STEPS, floor=0.1), 10, False),
        (_restarts(60), 1, False),
        (_restarts(6), 1, False),
        (_triangles(45, 0.1), 1, False),
        (_triangles(45, 0.0), 10, False),
        (_restarts_with_warmup(60, 10), 1, False),
        (lambda step: 1.0, 1, False),
        (lambda step: min(1.0, step / 30) * (1 - step / STEPS), 1, False),
    ],
)
def test_swings(tmp_path: Path, schedule: Schedule, logged: int, is_found: bool) -> None:
    rng = np.random.default_rng(0)
    with (tmp_path / "metrics.jsonl").open("w") as file:
        for step in range(0, STEPS, logged):
            loss = 2.0 - 0.002 * step + 0.05 * rng.normal()
            record = {"step": step + 1, "loss": loss, "lr": 2e-5 * schedule(step)}
            print(json.dumps(record), file=file)
    messages = [
        finding.message
        for finding in diagnose(tmp_path / "metrics.jsonl").findings
        if finding.rule == "learning-rate-ended-early"
    ]
    assert ["again and again" in message for message in messages] == [True] * is_found
