"""Losses that take the same course in each epoch, and losses that only fall, swing or restart."""

# ruff: noqa: E501 - a case is one line
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truetune
from tests.logs.healthy import healthy

RULE = "loss-repeats-with-the-epoch"
Form = Callable[[np.ndarray], np.ndarray]


def found(
    folder: Path,
    form: Form,
    *,
    epochs: int,
    steps: int,
    noise: float,
    rate: Form | None = None,
    every: int = 1,
    whole: bool = False,
) -> list[str]:
    """What the rule says of a loss over `epochs` of `steps`; `form` takes the epochs that have passed."""
    rng = np.random.default_rng(7)
    passed = np.arange(epochs * steps) / steps
    loss = form(passed) * np.exp(rng.normal(0, noise, passed.size))
    rates = 1e-4 * (rate(passed) if rate is not None else np.linspace(1, 0, passed.size))
    records = [
        {
            "step": n + 1,
            "loss": float(loss[n]),
            "epoch": float(int(passed[n]) if whole else (n + 1) / steps),
            "learning_rate": float(rates[n]),
        }
        for n in range(0, passed.size, every)
    ]
    (folder / "log.jsonl").write_text(
        "".join(json.dumps(record) + "\n" for record in records), encoding="utf-8"
    )
    report = truetune.check([str(folder / "log.jsonl")], select=[RULE], allow_unjudged=True)
    return [f"{finding.severity}: {finding.message}" for finding in report.findings]


def blocks(passed: np.ndarray) -> np.ndarray:
    """Three blocks of rows, each learned while it lasts."""
    place = passed % 1 * 3
    return (1.5 + 0.4 * (place.astype(int) == 1)) * np.exp(-0.9 * (place % 1)) * 0.95**passed


def four_classes(passed: np.ndarray) -> np.ndarray:
    """Four classes one after the other, each learned while it lasts, from its own level."""
    place = passed % 1 * 4
    level = np.array([1.0, 1.6, 1.4, 2.2])[place.astype(int)]
    return level * (0.35 + 0.65 * np.exp(-4 * (place % 1))) * 0.8**passed


def two_levels(passed: np.ndarray) -> np.ndarray:
    return np.where(passed % 1 < 0.6, 1.0, 1.8) * 0.9**passed


def longer_and_longer(passed: np.ndarray) -> np.ndarray:
    return 1.2 + 0.6 * (passed % 1) - 0.02 * passed


def easier_and_easier(passed: np.ndarray) -> np.ndarray:
    return 2.0 - 0.9 * (passed % 1) - 0.02 * passed


def same_batches(passed: np.ndarray) -> np.ndarray:
    """Batches that return, each as hard as before."""
    hard = np.random.default_rng(1).normal(0, 0.2, 64)
    return 1.5 * np.exp(hard[(passed % 1 * 64).round().astype(int) % 64]) * 0.9**passed


def falls(passed: np.ndarray) -> np.ndarray:
    return 0.5 + 2.0 * np.exp(-passed)


def memorised(passed: np.ndarray) -> np.ndarray:
    return 2.0 * 0.6 ** np.floor(passed)


def grouped(passed: np.ndarray) -> np.ndarray:
    """Stretches of 50 steps by length, of an epoch of 300."""
    return 1.5 + 0.5 * (passed * 6 % 1)


def grouped_in_quarters(passed: np.ndarray) -> np.ndarray:
    """A short epoch, in four stretches by length."""
    return (1.5 + 0.5 * (passed * 4 % 1)) * 0.9**passed


def restarts(passed: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.cos(np.pi * (passed % 1)))


@pytest.mark.parametrize(
    ("form", "size", "part"),
    [
        (blocks, {"epochs": 4, "steps": 80, "noise": 0.05}, "in blocks of similar rows (the loss jumps at 32%, 66% of the epoch)"),
        (blocks, {"epochs": 3, "steps": 400, "noise": 0.1, "every": 10}, "every 400 steps"),
        (blocks, {"epochs": 2, "steps": 90, "noise": 0.05, "whole": True}, "every 90 steps"),
        (four_classes, {"epochs": 5, "steps": 620, "noise": 0.06, "every": 10}, "in blocks of similar rows"),
        (four_classes, {"epochs": 3, "steps": 260, "noise": 0.03, "every": 5}, "in blocks of similar rows"),
        (four_classes, {"epochs": 2, "steps": 260, "noise": 0.1, "every": 4}, "in blocks of similar rows"),
        (two_levels, {"epochs": 3, "steps": 120, "noise": 0.1}, "warning"),
        (longer_and_longer, {"epochs": 4, "steps": 100, "noise": 0.05}, "goes one way within each epoch"),
        (easier_and_easier, {"epochs": 5, "steps": 60, "noise": 0.08}, "goes one way within each epoch"),
        (same_batches, {"epochs": 3, "steps": 64, "noise": 0.03}, "info: the loss takes the same course in each epoch, every 64 steps"),
    ],
)  # fmt: skip
def test_rows_that_come_in_the_same_order(
    form: Form, size: dict[str, Any], part: str, tmp_path: Path
) -> None:
    (message,) = found(tmp_path, form, **size)
    assert part in message


@pytest.mark.parametrize(
    ("form", "size"),
    [
        (falls, {"epochs": 3, "steps": 100, "noise": 0.02}),
        (falls, {"epochs": 5, "steps": 40, "noise": 0.2}),
        (memorised, {"epochs": 4, "steps": 80, "noise": 0.05}),
        (grouped_in_quarters, {"epochs": 3, "steps": 120, "noise": 0.03}),
        (grouped_in_quarters, {"epochs": 2, "steps": 80, "noise": 0.02}),
        (grouped, {"epochs": 3, "steps": 300, "noise": 0.03}),
        (lambda passed: 1 + 0.4 * restarts(passed), {"epochs": 4, "steps": 90, "noise": 0.03, "rate": restarts}),
        (lambda passed: 1.5 + 0.4 * np.sin(passed * 2 * np.pi * 1.37), {"epochs": 4, "steps": 90, "noise": 0.03}),
        (blocks, {"epochs": 1, "steps": 300, "noise": 0.05}),
        (blocks, {"epochs": 4, "steps": 12, "noise": 0.05}),
    ],
)  # fmt: skip
def test_losses_of_rows_in_any_order(form: Form, size: dict[str, Any], tmp_path: Path) -> None:
    assert found(tmp_path, form, **size) == []


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_healthy_runs_have_no_course_of_their_own(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 40):
        (tmp_path / "trainer_state.json").write_text(json.dumps(healthy(seed)), encoding="utf-8")
        report = truetune.check(
            [str(tmp_path / "trainer_state.json")], select=[RULE], allow_unjudged=True
        )
        assert report.findings == (), seed
