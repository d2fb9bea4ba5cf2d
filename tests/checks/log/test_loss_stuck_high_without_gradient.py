"""A loss that rises to one value and stays there without a gradient, and plateaus that are none of it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from truetune.checks.log.loss_stuck_high_without_gradient import LossStuckHighWithoutGradient
from truetune.logs.read_run_log import read_run

STEPS = 40


def messages(
    folder: Path, losses: Sequence[float], norms: Sequence[float], noise: float = 0.001
) -> list[str]:
    """What the rule says of a run whose curves go through these values, spread evenly over 40 records."""
    draw = random.Random(0)
    history = []
    for step in range(STEPS):
        place = step * (len(losses) - 1) / (STEPS - 1)
        low = min(int(place), len(losses) - 2)
        part = place - low
        loss = losses[low] * (1 - part) + losses[low + 1] * part
        norm = norms[low] * (1 - part) + norms[low + 1] * part
        shaken = {
            "loss": loss * (1 + draw.gauss(0, noise)),
            "grad_norm": norm * (1 + draw.gauss(0, 0.1)),
        }
        history.append({"step": step + 1, "learning_rate": 2e-5, **shaken})
    (folder / "trainer_state.json").write_text(
        json.dumps({"log_history": history}), encoding="utf-8"
    )
    rule = LossStuckHighWithoutGradient(read_run(folder))
    assert rule.unmet() is None
    return [one.message for one in rule.findings()]


def test_a_triplet_loss_at_its_margin(tmp_path: Path) -> None:
    (message,) = messages(tmp_path, [4.6, 4.98, 5.0, 5.0, 5.0], [0.8, 0.05, 0.01, 0.005, 0.003])
    assert message.startswith("the loss rises from 4.6")
    assert "and stays there from record" in message


@pytest.mark.parametrize(
    ("losses", "norms", "noise"),
    [
        pytest.param(
            [2.1, 2.3, 2.3, 2.3, 2.3], [1.0, 1.1, 1.0, 0.9, 1.0], 0.001, id="gradient stays"
        ),
        pytest.param([2.3, 2.3, 2.3, 2.3, 2.3], [1.0, 0.1, 0.01, 0.01, 0.01], 0.001, id="no rise"),
        pytest.param(
            [2.6, 1.5, 1.2, 1.2, 1.2], [2.0, 0.5, 0.1, 0.1, 0.1], 0.001, id="it has fallen"
        ),
        pytest.param(
            [2.1, 2.3, 2.3, 2.3, 2.3],
            [1.0, 0.1, 0.05, 0.04, 0.04],
            0.03,
            id="losses of batches differ",
        ),
        pytest.param(
            [2.1, 2.4, 2.8, 3.2, 3.6], [1.0, 0.1, 0.05, 0.04, 0.04], 0.001, id="it still rises"
        ),
    ],
)
def test_other_plateaus(
    tmp_path: Path, losses: list[float], norms: list[float], noise: float
) -> None:
    assert messages(tmp_path, losses, norms, noise) == []


def test_a_short_log_is_not_judged(tmp_path: Path) -> None:
    history = [{"step": step, "loss": 5.0, "grad_norm": 0.01} for step in range(1, 10)]
    (tmp_path / "trainer_state.json").write_text(
        json.dumps({"log_history": history}), encoding="utf-8"
    )
    assert LossStuckHighWithoutGradient(read_run(tmp_path)).unmet() is not None
