"""Logs of preference runs that name their quantities as loops of one's own do, and logs that only look like them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from truetune.checks.diagnose_log import diagnose
from truetune.logs.read_run_log import read_run
from truetune.logs.run_log import TrainingKind

Line = Callable[[int, float, float], str]


def write(path: Path, line: Line, growth: float = 0.0) -> Path:
    """A log of 24 records whose loss is -log sigmoid of the margin."""
    draw = random.Random(5)
    lines = []
    for number in range(1, 25):
        margin = draw.gauss(growth * number / 24, 0.007)
        lines.append(line(5 * number, math.log1p(math.exp(-margin)), margin))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def trainer_log(step: int, loss: float, margin: float, key: str = "accuracy") -> str:
    """A line of LLaMA-Factory's trainer_log.jsonl."""
    return json.dumps(
        {
            "current_steps": step,
            "total_steps": 120,
            "loss": loss,
            key: 0.5 + margin,
            "lr": 5e-7,
            "epoch": step / 60,
            "percentage": step / 1.2,
            "elapsed_time": "0:00:10",
        }
    )


@pytest.mark.parametrize(
    "line",
    [
        lambda s, x, m: f"step {s}/120 loss {x:.4f} margin {m:.4f} acc 0.50 lr 5.0e-07",
        lambda s, x, m: f"[step {s}] loss={x:.4f} reward_margin={m:.4f} reward_acc=0.50",
        lambda s, x, m: f"epoch 1 | step {s} | loss {x:.4f} | rewards/margin {m:+.4f} | acc 50%",
        lambda s, x, m: f"Step {s} | loss:{x:.4f} margins:{m:.4f} accuracy:0.5 lr:5e-7",
        lambda s, x, m: json.dumps({"step": s, "dpo_loss": x, "margin": m, "acc": 0.5}),
        lambda s, x, m: f"{{'loss': {x}, 'margin': {m}, 'acc': 0.5, 'step': {s}}}",
    ],
)
def test_a_loop_that_prints_margins_trains_preferences(tmp_path: Path, line: Line) -> None:
    log = read_run(write(tmp_path / "run.log", line))
    assert log.kind == "preference"
    assert {"loss", "rewards/margins", "rewards/accuracies"} <= log.curves.keys()
    assert log.curve("rewards/accuracies").value.max() <= 1
    assert "dpo-stuck-at-ln2" in {f.rule for f in diagnose(tmp_path / "run.log").findings}


def test_a_margin_that_grows_is_not_stuck(tmp_path: Path) -> None:
    path = write(
        tmp_path / "run.log", lambda s, x, m: f"step {s} loss {x:.4f} margin {m:.4f} acc 0.8", 0.9
    )
    assert read_run(path).kind == "preference"
    assert not diagnose(path).findings


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (lambda s, x, m: f"step {s} loss {x:.4f} chosen {m:.4f} rejected {-m:.4f}", "preference"),
        (
            lambda s, x, m: f"step {s} loss {x:.4f} logp_chosen -81.2 logp_rejected -90",
            "preference",
        ),
        (lambda s, x, m: trainer_log(s, x, m), "preference"),
        (lambda s, x, m: trainer_log(s, x, m, "eval_accuracy"), "language"),
        (lambda s, x, m: f"step {s} loss {2 - s / 100:.4f} acc 0.61", "language"),
        (lambda s, x, m: f"step {s} loss {2 - s / 100:.4f} margin 0.2 acc 0.61", "language"),
        (lambda s, x, m: f"step {s} loss {x:.4f} lr 5e-7", "language"),
    ],
)
def test_what_was_trained_by_the_names_of_the_log(
    tmp_path: Path, line: Line, kind: TrainingKind
) -> None:
    name = "trainer_log.jsonl" if line(5, 0.6, 0.1).startswith("{") else "run.log"
    assert read_run(write(tmp_path / name, line)).kind == kind
