"""Exports of one curve, tables of evaluators, bars that draw an evaluation again, and counts of lost iterations."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from truetune.checks.diagnose_log import diagnose
from truetune.logs.read_run_log import read_run


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("run-sft-tag-train_loss.csv", "loss"),
        ("run-sft-tag-eval_loss.csv", "eval_loss"),
        ("my_train_loss.csv", "loss"),
        ("learning_rate.csv", "learning_rate"),
        ("reward_margin_of_mine.csv", "reward_margin_of_mine"),
    ],
)
def test_an_export_of_tensorboard_is_called_by_its_file(
    name: str, metric: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(
        "Wall time,Step,Value\n1740000000.5,10,2.5\n1740000060.5,20,1.5\n", encoding="utf-8"
    )
    log = read_run(file)
    assert log.curve(metric).value.tolist() == [2.5, 1.5]
    assert log.curve(metric).step.tolist() == [10, 20]
    assert log.curve("wall_time").value[0] == 1740000000.5


def test_a_table_of_an_evaluator_holds_evaluations(tmp_path: Path) -> None:
    file = tmp_path / "similarity_evaluation_sts-dev_results.csv"
    file.write_text("epoch,steps,cosine_pearson\n0.5,100,0.81\n1.0,200,0.83\n", encoding="utf-8")
    log = read_run(file)
    assert log.curve("eval_cosine_pearson").step.tolist() == [100, 200]
    assert log.curve("eval_cosine_pearson").value.tolist() == [0.81, 0.83]


def test_a_bar_draws_an_evaluation_again(tmp_path: Path) -> None:
    """The second drawing of one result is no second evaluation."""
    bars = [
        f"Epoch 0: {n}%|###| {10 * n}/1000 [00:10<10:00, 2.01it/s, v_num=3, reduced_train_loss={2 - n / 80:.3f},"
        f" global_step={10 * n - 1:.1f}, val_loss={1.3 + 0.2 * (n // 20):.3f}]"
        for n in range(1, 100)
    ]
    file = tmp_path / "nemo.log"
    file.write_text("\n".join(bars) + "\n", encoding="utf-8")
    log = read_run(file)
    assert log.curve("eval_loss").value.tolist() == [1.3, 1.5, 1.7, 1.9, 2.1]
    assert log.curve("loss").step.size == 99


def megatron_line(n: int, nan: int) -> str:
    """A line of Megatron on ten iterations."""
    return (
        f" iteration {10 * n:8d}/     500 | consumed samples: {5120 * n:12d} | learning rate: 3.000000E-04 | lm loss:"
        f" {3 + math.exp(-n / 8):.6E} | loss scale: 1.0 | grad norm: 1.200 | number of skipped iterations:   0 |"
        f" number of nan iterations: {nan:3d} |"
    )


@pytest.mark.parametrize(
    ("lost", "is_found"), [(range(0), False), (range(9, 10), False), (range(9, 30), True)]
)
def test_iterations_that_megatron_leaves_out(lost: range, is_found: bool, tmp_path: Path) -> None:
    file = tmp_path / "megatron.log"
    lines = [megatron_line(n, 2 if n in lost else 0) for n in range(1, 51)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert any(one.rule == "loss-not-finite" for one in diagnose(file).findings) == is_found


@pytest.mark.parametrize(("every", "severity"), [(2, "warning"), (1, "error"), (30, None)])
def test_steps_that_deepspeed_counts_as_skipped(
    every: int, severity: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "ds.log"
    lines = [
        f"[2025-01-20 11:00:40,123] [INFO] [logging.py:96:log_dist] [Rank 0] step={10 * n}, skipped={10 * n // every},"
        " lr=[2e-05], mom=[(0.9, 0.95)]"
        for n in range(1, 41)
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = {one.rule: one.severity for one in diagnose(file).findings}
    assert found.get("loss-scale-collapses") == severity


@pytest.mark.parametrize(("spread", "is_found"), [(0.0, True), (0.01, False)])
def test_a_reward_in_openrlhfs_bar(spread: float, is_found: bool, tmp_path: Path) -> None:
    bars = [
        f"Episode [1/1]: {n}%|###| {n}/60 [00:10<12:10, 31.20s/it, policy_loss=0, kl=0.01, reward={spread * n:.3g},"
        f" return=0, response_length={300 + n}, act_lr=5e-7]"
        for n in range(1, 61)
    ]
    file = tmp_path / "openrlhf.log"
    file.write_text("\n".join(bars) + "\n", encoding="utf-8")
    report = diagnose(file)
    assert any(one.rule == "no-reward-signal" for one in report.findings) == is_found
