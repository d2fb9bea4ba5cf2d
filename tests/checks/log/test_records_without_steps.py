"""Logs whose records say no step: a finding names the epoch, and no step that the run did not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.logs.read_run_log import read_run

RISING = (0.58, 0.66, 0.89, 1.17, 1.43)


def printed(path: Path, *, step: str = "", epoch: bool = True) -> Path:
    """Output of a run of five epochs with nine losses in each, as a Trainer prints it."""
    lines = []
    for number in range(1, 46):
        values = [f"'loss': {0.7 * 0.9**number:.4f}", "'grad_norm': 1.1", "'learning_rate': 1e-05"]
        where = [f"'epoch': {number / 9:.2f}"] if epoch else []
        where += [f"'{step}': {number * 10}"] if step else []
        lines.append("{" + ", ".join([*values, *where]) + "}")
        if number % 9 == 0:
            lines.append(
                "{"
                + ", ".join(
                    [f"'eval_loss': {RISING[number // 9 - 1]}", "'eval_runtime': 20.1", *where]
                )
                + "}"
            )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("step", "epoch", "expected"),
    [
        ("", True, "is lowest at epoch 1 with"),
        ("", False, "is lowest at record 10 of the log with"),
        ("step", True, "is lowest at step 90 (epoch 1) with"),
        ("step", False, "is lowest at step 90 with"),
    ],
)
def test_the_lowest_evaluation(step: str, epoch: bool, expected: str, tmp_path: Path) -> None:
    path = printed(tmp_path / "train.log", step=step, epoch=epoch)
    (found,) = run_rule(read_run(path), find_rule("eval-loss-rises")).findings
    assert expected in found.message
    assert ("step" in found.remedy) == bool(step)
