"""A loss that stays where it is, beside the log of the same training that falls."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from truetune.checks.check_paths import check_paths
from truetune.settings.run_spec import RunSpec


def write_log(
    path: Path, *, begin: float, end: float, rate: float = 1e-5, steps: int = 1000
) -> str:
    """The log of a hand-written loop."""
    draw = random.Random(7)
    lines = []
    for number in range(1, 101):
        share = number / 100
        loss = begin + (end - begin) * share + draw.uniform(-0.02, 0.02)
        record = {
            "step": number * steps // 100,
            "loss": round(loss, 4),
            "grad_norm": round(draw.uniform(2.0, 2.6), 3),
            "lr": rate * (1.1 - share),
        }
        lines.append(json.dumps(record) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


def told(folder: Path, **other: float) -> list[tuple[str, str]]:
    """What is said of a flat loss beside another log."""
    flat = write_log(folder / "four.txt", begin=1.68, end=1.68)
    settings = {"begin": 1.65, "end": 0.8, "rate": 1e-5, "steps": 4000} | other
    beside = write_log(
        folder / "one.txt",
        begin=settings["begin"],
        end=settings["end"],
        rate=settings["rate"],
        steps=int(settings["steps"]),
    )
    findings = check_paths([flat, beside], RunSpec()).findings
    return [(one.severity, one.message) for one in findings if one.code == "LOG006"]


def test_a_run_beside_that_learns(tmp_path: Path) -> None:
    found = told(tmp_path)
    assert [severity for severity, _ in found] == ["warning"]
    assert "while one.txt falls from 1.6" in found[0][1]


@pytest.mark.parametrize(
    "other",
    [
        {"end": 1.6},
        {"rate": 1e-4},
        {"begin": 2.6},
        {"steps": 40_000},
    ],
)
def test_a_run_beside_that_is_another(tmp_path: Path, other: dict[str, float]) -> None:
    found = told(tmp_path, **other)
    assert all(severity == "info" for severity, _ in found)
    assert not any("one.txt" in message for _, message in found)
