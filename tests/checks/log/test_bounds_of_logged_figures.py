"""What logged figures can't be together: rates that sum to nothing, two losses that do not measure the same, an
accuracy above its loss, and a second warm-up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from tests.logs.test_rules import found, log_of
from truetune.logs.detect_resumes_without_state import find_restarts

STEPS = 300
WARMUP = 15
PEAK = 2e-5
Record = dict[str, Any]


def _planned_rate(step: float, peak: float = PEAK) -> float:
    """A warm-up, and a straight line down to 0."""
    return peak * min(step / WARMUP, (STEPS - step) / (STEPS - WARMUP))


def _records(every: int = 1, evaluated_every: int = 50, epochs: float = 3.0) -> list[Record]:
    """A healthy run of SFT as TRL logs it."""
    rng = np.random.default_rng(5)
    records: list[Record] = []
    for step in range(every, STEPS + 1, every):
        fall = math.exp(-step / 60)
        epoch = step / STEPS * epochs
        training = {
            "loss": 1.05 + 0.85 * fall + float(rng.normal(0, 0.04)),
            "learning_rate": _planned_rate(step),
            "mean_token_accuracy": 0.72 - 0.12 * fall + float(rng.normal(0, 0.01)),
        }
        records.append({"step": step, "epoch": epoch} | training)
        if step % evaluated_every == 0:
            evaluation = {
                "eval_loss": 1.12 + 0.75 * fall,
                "eval_mean_token_accuracy": 0.7 - 0.1 * fall,
            }
            records.append({"step": step, "epoch": epoch} | evaluation)
    return records


def _changed(
    records: Iterable[Record], name: str, change: Callable[[Record], float]
) -> list[Record]:
    """The records with another value of one figure, where they have it."""
    return [one | ({name: change(one)} if name in one else {}) for one in records]


def _found(records: list[Record], **state: Any) -> dict[str, Any]:
    return found(log_of({"log_history": records, "max_steps": STEPS, **state}))


@pytest.mark.parametrize("every", [1, 10])
def test_a_healthy_run_is_silent(every: int) -> None:
    assert not _found(_records(every))


@pytest.mark.parametrize("every", [1, 10])
def test_rates_that_sum_to_nothing(every: int) -> None:
    records = _changed(_records(every), "learning_rate", lambda one: 1e-6 * one["learning_rate"])
    message = _found(records)["learning-rates-sum-to-nothing"].message
    assert "sum to 3e-09" in message
    assert "another learning rate than the logged one" in message


def test_the_beginning_of_a_run_is_no_sum() -> None:
    name = "learning-rates-sum-to-nothing"
    warmup = [{"step": step, "loss": 2.0, "learning_rate": 1e-9 * step} for step in range(1, 61)]
    assert name not in found(log_of({"log_history": warmup}))
    level = [one | {"learning_rate": 5e-8} for one in warmup]
    # A trial of a few steps says nothing.
    assert name not in found(log_of({"log_history": level[:5], "max_steps": 5}))
    assert name in found(log_of({"log_history": level[:10], "max_steps": 10}))
    assert name in found(log_of({"log_history": level}))
    # Steps that are planned count as well.
    assert name not in found(log_of({"log_history": level, "max_steps": 10_000}))


def test_rates_of_a_preference_run_are_enough() -> None:
    pairs = [
        {"step": step, "loss": 0.69 - 0.001 * step, "rewards/margins": 0.002 * step}
        | {"rewards/accuracies": 0.6, "learning_rate": 5e-7}
        for step in range(1, 31)
    ]
    assert "learning-rates-sum-to-nothing" not in found(
        log_of({"log_history": pairs, "max_steps": 30})
    )


@pytest.mark.parametrize("share", [0.35, 0.4, 0.53])
def test_an_evaluation_far_below_the_training(share: float) -> None:
    records = _changed(_records(), "eval_loss", lambda one: share * one["eval_loss"])
    finding = _found(records)["evaluation-measures-something-else"]
    assert "below the training loss at all 6 evaluations" in finding.message


@pytest.mark.parametrize("share", [0.7, 0.85, 1.3])
def test_evaluations_near_the_training(share: float) -> None:
    records = _changed(_records(), "eval_loss", lambda one: share * one["eval_loss"])
    assert "evaluation-measures-something-else" not in _found(records)


@pytest.mark.parametrize(
    ("epochs", "times", "is_found"),
    [(3.0, 1.7, True), (0.9, 1.7, True), (6.0, 1.7, False), (6.0, 2.2, True)],
)
def test_an_evaluation_far_above_unseen_rows(epochs: float, times: float, is_found: bool) -> None:
    # In 6 epochs the first one has a single evaluation.
    records = _changed(_records(epochs=epochs), "eval_loss", lambda one: times * one["eval_loss"])
    assert ("evaluation-measures-something-else" in _found(records)) is is_found


def test_rows_learned_by_heart_are_no_other_measure() -> None:
    records = _changed(
        _records(), "loss", lambda one: one["loss"] * (1 if one["epoch"] <= 1 else 0.4)
    )
    assert "evaluation-measures-something-else" not in _found(records)


def test_epochs_of_data_without_a_length_tell_nothing() -> None:
    records = _changed(_records(epochs=0.9), "eval_loss", lambda one: 1.7 * one["eval_loss"])
    assert "evaluation-measures-something-else" not in _found(
        records, num_train_epochs=9_223_372_036_854_775_807
    )


def test_without_epochs_only_an_evaluation_below_is_told() -> None:
    records = [
        {name: value for name, value in one.items() if name != "epoch"} for one in _records()
    ]
    above = _changed(records, "eval_loss", lambda one: 2.2 * one["eval_loss"])
    assert "evaluation-measures-something-else" not in _found(above)
    below = _changed(records, "eval_loss", lambda one: 0.4 * one["eval_loss"])
    assert "evaluation-measures-something-else" in _found(below)


def test_speech_is_augmented_in_training() -> None:
    records = [
        one
        | ({"eval_loss": 0.4 * one["eval_loss"], "eval_wer": 12.5} if "eval_loss" in one else {})
        for one in _records()
    ]
    assert "evaluation-measures-something-else" not in _found(records)


def test_a_loss_of_several_parts_is_left_alone() -> None:
    records = _changed(_records(), "eval_loss", lambda one: 0.5 * one["eval_loss"])
    with_parts = [
        one | {name: 0.4 * one["loss"] for name in ("teacher_loss", "token_loss") if "loss" in one}
        for one in records
    ]
    assert "evaluation-measures-something-else" not in _found(with_parts)


@pytest.mark.parametrize("name", ["mean_token_accuracy", "token_acc"])
@pytest.mark.parametrize("right", [0.95, 0.97, 1.0])
def test_an_accuracy_that_the_loss_does_not_allow(right: float, name: str) -> None:
    records = [
        {
            (name if key == "mean_token_accuracy" else key): right
            if key.startswith("mean")
            else value
            for key, value in one.items()
        }
        for one in _records(10)
    ]
    assert (
        "not measured on the same tokens"
        in _found(records)["accuracy-above-what-loss-allows"].message
    )


@pytest.mark.parametrize(
    ("loss", "right"), [(1.05, 0.72), (0.1, 0.98), (0.02, 1.0), (0.4, 0.93), (10.8, 0.0)]
)
def test_accuracies_that_the_loss_allows(loss: float, right: float) -> None:
    records = _changed(_records(), "loss", lambda one: loss)
    records = _changed(records, "mean_token_accuracy", lambda one: right)
    assert "accuracy-above-what-loss-allows" not in _found(records)


def test_a_token_accuracy_that_falls_with_its_loss() -> None:
    records = _changed(
        _records(), "mean_token_accuracy", lambda one: 0.72 - 0.2 * one["step"] / STEPS
    )
    finding = _found(records)["score-at-worst-falling-or-nan"]
    assert (finding.severity, "falls" in finding.message) == ("warning", True)
    level = _changed(records, "loss", lambda one: 1.05 + 0.01 * (one["step"] % 7))
    assert _found(level)["score-at-worst-falling-or-nan"].severity == "info"


def _restarts(rate: Callable[[float], float], every: int = 1) -> list[str]:
    records = _changed(_records(every), "learning_rate", lambda one: rate(one["step"]))
    return [one.lost for one in find_restarts(log_of({"log_history": records}))]


def test_a_second_warmup() -> None:
    assert _restarts(_planned_rate) == []
    # What follows it may be level, or a line of another length.
    assert _restarts(
        lambda step: _planned_rate(step) if step <= 150 else PEAK * min(1, (step - 150) / WARMUP)
    ) == ["schedule"]
    assert _restarts(
        lambda step: (
            _planned_rate(step)
            if step <= 200
            else 0.5 * PEAK * min((step - 201) / 10, (STEPS - step) / 90)
        )
    ) == ["schedule"]


@pytest.mark.parametrize(
    "rate",
    [
        # cosine_with_restarts: it jumps to the peak
        lambda step: PEAK * min(step / WARMUP, 0.5 + 0.5 * math.cos(math.pi * (step % 100) / 100)),
        # cycles that warm up each time
        lambda step: PEAK * min((step % 75) / WARMUP, (75 - step % 75) / 60),
        lambda step: PEAK * min(1.0, step / WARMUP),
        # warm-up, stable, decay
        lambda step: PEAK * min(1.0, step / WARMUP, (STEPS - step) / 50),
        # a rate that a plateau lowers
        lambda step: PEAK * min(1.0, step / WARMUP) * 0.1 ** (step // 120),
    ],
)
@pytest.mark.parametrize("every", [1, 10])
def test_schedules_without_a_second_warmup(rate: Callable[[float], float], every: int) -> None:
    assert _restarts(rate, every) == []
