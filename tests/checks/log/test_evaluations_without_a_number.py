"""Losses of evaluations that are no numbers: beside a sound training, and in a log without one."""

from __future__ import annotations

import json
import math
from pathlib import Path

from truetune.checks.diagnose_log import diagnose


def evidence(folder: Path, records: list[dict[str, float]]) -> tuple[str, str]:
    """What the rule says of a log: its facts, and its advice."""
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    (found,) = [one for one in diagnose(path).findings if one.code == "LOG004"]
    return " ".join(found.evidence), found.remedy


def test_a_log_of_evaluations_alone(tmp_path: Path) -> None:
    facts, advice = evidence(tmp_path, [{"step": n, "eval_loss": math.nan} for n in (1, 2, 3)])
    assert "the log has no loss of a training" in facts
    assert "evaluate in bfloat16 first" in advice


def test_evaluations_beside_a_sound_training(tmp_path: Path) -> None:
    records = [{"step": n, "loss": 2.0 - n / 50} for n in range(1, 31)]
    facts, advice = evidence(tmp_path, [*records, {"step": 30, "eval_loss": math.nan}])
    assert "the losses of the training are finite" in facts
    assert "evaluate in bfloat16 first" in advice


def test_evaluations_of_which_one_is_a_number(tmp_path: Path) -> None:
    records = [{"step": 1, "eval_loss": 1.2}, {"step": 2, "eval_loss": math.nan}]
    _, advice = evidence(tmp_path, records)
    assert "count the labels" not in advice
