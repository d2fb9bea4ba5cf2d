"""Advice that can be followed, and counts that are right, by what a log and the files beside it say."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.logs.test_rules import found, log_of
from truetune.logs.read_run_log import read_run

ENDED, PEAK, NAN = (
    "learning-rate-ended-early",
    "learning-rate-never-peaked",
    "loss-or-gradient-exactly-zero",
)


def rate_log(tmp_path: Path, ends_at: int, command: str = "", gap: int = 1) -> dict[str, Any]:
    """What is found in output whose linear rate is 0 from step `ends_at` of 160 on, logged every `gap` steps."""
    rng = np.random.default_rng(0)
    lines = [command] + [
        f"step={n} loss={2.5 - n / 400 + float(rng.normal(0, 0.05)):.4f} lr={max(0.0, 1e-4 * (1 - n / ends_at)):.3e}"
        for n in range(gap, 161, gap)
    ]
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines), encoding="utf-8")
    return found(read_run(path))


@pytest.mark.parametrize(
    ("command", "says", "says_not"),
    [
        ("", "in each accumulated batch, or by each process", "there are"),
        ("Gradient Accumulation steps = 8", "there are 8 accumulated batches", "process"),
        ("World size: 8", "there are 8 processes", "accumulated"),
        (
            "Gradient Accumulation steps = 3",
            "in each accumulated batch, or by each process",
            "there are",
        ),
        ("World size: 1", "in each accumulated batch, or by each process", "there are"),
    ],
)
def test_what_steps_a_schedule_too_often(
    command: str, says: str, says_not: str, tmp_path: Path
) -> None:
    evidence = " ".join(rate_log(tmp_path, 20, command)[ENDED].evidence)
    assert says in evidence
    assert says_not not in evidence


def test_a_schedule_that_ends_between_two_records_gives_a_range(tmp_path: Path) -> None:
    assert "8 to 1" in " ".join(rate_log(tmp_path, 15, gap=10)[ENDED].evidence)


@pytest.mark.parametrize("ends_at", [160, 161, 200])
def test_a_schedule_that_ends_with_the_run_is_right(ends_at: int, tmp_path: Path) -> None:
    assert ENDED not in rate_log(tmp_path, ends_at)


@pytest.mark.parametrize(
    ("numbers", "epochs"),
    [
        ([0, 0, 0, 1, 1, 1, 2, 2, 2], 3),
        ([0, 0, 1, 1], 2),
        ([1, 1, 1, 2, 2, 2], 2),
        ([0.5, 1.0, 1.5, 2.0], 2),
        ([0, 1, 2], 2),
        ([0, 0.5, 1, 1.5, 2, 2], 2),
    ],
)
def test_epochs_are_counted_as_the_log_numbers_them(numbers: list[float], epochs: float) -> None:
    history = [{"step": n + 1, "loss": 2.0, "epoch": epoch} for n, epoch in enumerate(numbers)]
    assert log_of({"log_history": history}).epochs_at_end == epochs


def warming(steps: int, gap: int, epochs: float = 0.0, peak_at: int = 10**6) -> dict[str, Any]:
    """What is found in the log of a run whose rate rises up to `peak_at`, and whose end nothing tells."""
    history = [
        {"step": n, "loss": 2.0 - n * 1e-5, "learning_rate": 1e-9 * min(n, peak_at)}
        | ({"epoch": epochs * n / steps} if epochs else {})
        for n in range(gap, steps + 1, gap)
    ]
    return found(log_of({"log_history": history}))


@pytest.mark.parametrize(
    ("steps", "gap", "epochs", "severity"),
    [
        (620, 10, 0, "warning"),
        (3_000, 50, 0, "warning"),
        (90, 3, 1.0, "warning"),
        (40, 1, 0, "info"),
        (200, 10, 0.4, "info"),
    ],
)
def test_a_warm_up_over_a_long_log_is_a_warning(
    steps: int, gap: int, epochs: float, severity: str
) -> None:
    finding = warming(steps, gap, epochs)[PEAK]
    assert finding.severity == severity
    assert "warmup_num_steps" in finding.remedy


@pytest.mark.parametrize("peak_at", [50, 300, 550])
def test_a_rate_that_comes_to_its_peak_warms_up_in_time(peak_at: int) -> None:
    assert PEAK not in warming(620, 10, peak_at=peak_at)


def lost_run(folder: Path, settings: str = "", **state: Any) -> Path:
    """A run of 300 steps whose weights are NaN from step 15 on, as transformers logs it."""
    history = [
        {
            "step": n,
            "epoch": n / 100,
            "loss": 2.0 - n / 50 if n < 20 else 0.0,
            "grad_norm": 1.0 if n < 15 else math.nan,
            "learning_rate": 1e-4 * (1 - n / 400),
        }
        for n in range(5, 301, 5)
    ]
    history += [{"step": n, "epoch": n / 100, "eval_loss": math.nan} for n in (100, 200, 300)]
    whole = {"log_history": history, "max_steps": 300, "num_train_epochs": 3, **state}
    (folder / "trainer_state.json").write_text(json.dumps(whole), encoding="utf-8")
    if settings:
        (folder / "training_args.yaml").write_text(settings, encoding="utf-8")
    return folder


def test_one_nan_is_one_finding(tmp_path: Path) -> None:
    log = read_run(lost_run(tmp_path))
    assert "shortcut-loss" not in found(log)
    assert NAN in found(log)


@pytest.mark.parametrize(
    ("settings", "state", "says", "says_not"),
    [
        ("fp16: true\n", {}, ("bf16=True", "float32", "restart from"), ("max_grad_norm",)),
        ("bf16: true\n", {}, ("lower learning_rate",), ("in bf16",)),
        ("max_grad_norm: 0.0\n", {}, ("max_grad_norm=1.0",), ()),
        ("max_grad_norm: 1.0\n", {}, ("lower learning_rate",), ("max_grad_norm",)),
        ("", {"save_steps": 250}, ("saved at step 100",), ("restart from",)),
        ("", {"save_steps": 50}, ("saved at step 50",), ("restart from",)),
        ("", {"save_steps": 10}, ("restart from a checkpoint before that step",), ()),
        ("", {}, ("restart from a checkpoint before that step",), ("saved at step",)),
    ],
)
def test_the_remedy_of_lost_weights_can_be_followed(
    settings: str,
    state: dict[str, Any],
    says: tuple[str, ...],
    says_not: tuple[str, ...],
    tmp_path: Path,
) -> None:
    remedy = found(read_run(lost_run(tmp_path, settings, **state)))[NAN].remedy
    assert all(part in remedy for part in says), remedy
    assert not any(part in remedy for part in says_not), remedy


def test_a_checkpoint_is_named_where_there_is_one(tmp_path: Path) -> None:
    folder = lost_run(tmp_path)
    (folder / "checkpoint-10").mkdir()
    assert "go back to checkpoint-10" in found(read_run(folder))[NAN].remedy
    (folder / "checkpoint-10").rename(folder / "checkpoint-100")
    assert "all checkpoints here are from after that step" in found(read_run(folder))[NAN].remedy


@pytest.mark.parametrize(
    ("kept", "says"),
    [
        ((), "use the checkpoint nearest to step 60"),
        ((60, 300), "use checkpoint-60"),
        ((40, 80, 300), "use checkpoint-40"),
        ((300,), "no checkpoint near step 60 is left"),
        ((200, 300), "(there is checkpoint-200, checkpoint-300)"),
    ],
)
def test_the_best_checkpoint_is_one_that_is_left(
    kept: tuple[int, ...], says: str, tmp_path: Path
) -> None:
    history = [{"step": n, "loss": 2.0 - n / 200, "epoch": n / 60} for n in range(5, 301, 5)]
    history += [
        {"step": n, "eval_loss": 1.2 + abs(n - 60) / 200, "epoch": n / 60}
        for n in range(20, 301, 20)
    ]
    state = {"log_history": history, "max_steps": 300, "num_train_epochs": 5}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    for step in kept:
        (tmp_path / f"checkpoint-{step}").mkdir()
    assert says in found(read_run(tmp_path))["eval-loss-rises"].remedy


def test_records_without_steps_are_called_records(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    losses = [2.0 - n / 20 for n in range(10)] + [
        8.0 + float(rng.normal(0, 0.1)) for _ in range(60)
    ]
    lines = [f"{{'loss': {loss:.4f}, 'epoch': {2 * n / 70:.3f}}}" for n, loss in enumerate(losses)]
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines), encoding="utf-8")
    findings = found(read_run(path))
    assert "at record 10 to" in findings["loss-diverges"].message
    assert "flat-loss" not in findings


@pytest.mark.parametrize(("backwards", "expected"), [(True, [PEAK]), (False, [])])
def test_the_share_of_the_peak_rate_tells_a_decay_that_runs_backwards(
    backwards: bool, expected: list[str], tmp_path: Path
) -> None:
    lines = []
    for n in range(0, 801, 4):
        done = n / 800
        share = done if backwards else 1 - done
        loss = 1.6 - n / 4000 + 0.02 * math.sin(n)
        lines.append(f"step {n:05d} ({done:.2%}) | loss: {loss:.6f} | lrm: {share:.2f} | dt: 508ms")
    path = tmp_path / "mid_train.log"
    path.write_text("\n".join(lines), encoding="utf-8")
    assert [name for name in found(read_run(path)) if name == PEAK] == expected
