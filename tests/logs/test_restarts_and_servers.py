"""Restarts that resumed nothing, leaps that are no divergence, NaN of bars, and answers that a server can't read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import pytest

from truetune.checks.diagnose_log import diagnose
from truetune.logs.parse_printed_records import parse_printed_record
from truetune.logs.run_log_builder import parse_logged_number


def launch(steps: int, total: int = 100, begins: float = 2.0, first: int = 0) -> list[str]:
    """Records of transformers of one launch, which has no step."""
    return [
        str(
            {
                "loss": round(1 + (begins - 1) * math.exp(-i / 8) + 0.01 * math.sin(7 * i), 4),
                "grad_norm": 1.0,
                "learning_rate": round(1e-4 * (1 - i / total), 10),
                "epoch": round((i + 1) / 50, 4),
            }
        )
        for i in range(first, first + steps)
    ]


def found(path: Path, lines: Iterable[str]) -> dict[str, str]:
    """What is found in a log of these lines."""
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {finding.rule: finding.message for finding in diagnose(path).findings}


def test_each_launch_that_began_again_is_named(tmp_path: Path) -> None:
    lines = [*launch(20), "PREEMPTED", *launch(15), "restart=2", *launch(25)]
    message = found(tmp_path / "out.log", lines)["resume-starts-fresh"]
    assert "21, 36" in message
    assert "nothing was resumed" in message


def test_a_run_that_resumes_is_silent(tmp_path: Path) -> None:
    lines = [*launch(20), "PREEMPTED", *launch(30, first=18)]
    assert "resume-starts-fresh" not in found(tmp_path / "out.log", lines)


def test_one_launch_is_silent(tmp_path: Path) -> None:
    assert "resume-starts-fresh" not in found(tmp_path / "out.log", launch(60))


SERVER = "INFO:     Uvicorn running on http://0.0.0.0:9000 (Press CTRL+C to quit)"
REQUEST = 'INFO:     10.0.3.37:44802 - "POST /x HTTP/1.1" 500 Internal Server Error'


def traceback(file: str, code: str, error: str) -> list[str]:
    """A traceback of one frame."""
    head = "Traceback (most recent call last):"
    return [head, f'  File "{file}", line 8, in run', f"    {code}", error]


JSON_ERROR = "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"


@pytest.mark.parametrize(
    "lines",
    [
        [SERVER, *traceback("/app/api.py", "x = json.loads(text)", JSON_ERROR), REQUEST],
        traceback("evaluate.py", "fields = json.loads(response)", JSON_ERROR),
        traceback("score.py", "json.loads(row['prediction'])", JSON_ERROR),
        traceback(
            "a.py",
            "Invoice.model_validate_json(answer)",
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for Invoice",
        ),
        traceback(
            "b.py", "yaml.safe_load(completion)", "yaml.scanner.ScannerError: mapping values"
        ),
    ],
)
def test_answers_that_a_program_can_not_read(lines: list[str], tmp_path: Path) -> None:
    rules = found(tmp_path / "x.log", lines)
    assert "answers-fail-to-parse" in rules
    assert "run-ended-in-an-exception" not in rules


@pytest.mark.parametrize(
    "lines",
    [
        traceback("train.py", "rows = [json.loads(line) for line in file]", JSON_ERROR),
        traceback("/x/site-packages/datasets/json.py", "json.loads(output)", JSON_ERROR),
        [SERVER, *traceback("/app/api.py", "model(**batch)", "ValueError: no"), REQUEST],
        [*launch(9), *traceback("train.py", "json.loads(output)", JSON_ERROR)],
    ],
)
def test_other_exceptions_are_not_about_answers(lines: list[str], tmp_path: Path) -> None:
    assert "answers-fail-to-parse" not in found(tmp_path / "x.log", lines)


def test_nan_of_a_bar() -> None:
    assert math.isnan(parse_logged_number("nan.0") or 0.0)
    assert parse_logged_number("-inf.0") == -math.inf
    assert parse_logged_number("nano.0") is None
    record = parse_printed_record("epoch 2 step 40/105 loss tensor(2.31, device='cuda:0') lr 1e-4")
    assert record is not None
    assert (record["loss"], record["epoch"], record["step"]) == ("2.31", "2", "40")


def leaps(*blocks: tuple[float, float, int]) -> list[str]:
    """Records with a step, in blocks that fall from one level to another."""
    values = [
        low + (high - low) * math.exp(-4 * i / n) + 0.02 * math.sin(5 * i)
        for high, low, n in blocks
        for i in range(n)
    ]
    return [f"step {i + 1} loss {value:.4f} lr 1e-5" for i, value in enumerate(values)]


@pytest.mark.parametrize(
    ("blocks", "diverges"),
    [
        ([(2.3, 0.8, 20)] * 5, False),
        ([(2.3, 0.8, 30), (3.0, 0.5, 12), (2.2, 1.3, 25)], False),
        ([(1.7, 0.9, 25), (1.8, 0.8, 15), (1.9, 1.2, 14)], False),
        ([(2.0, 1.4, 60), (9.0, 8.5, 40)], True),
        ([(2.0, 1.4, 40), (2.4, 1.4, 20), (7.2, 7.0, 40)], True),
    ],
)
def test_leaps_that_fall_again_are_no_divergence(
    blocks: list[tuple[float, float, int]], diverges: bool, tmp_path: Path
) -> None:
    rules = found(tmp_path / "x.log", leaps(*blocks))
    assert bool(rules.keys() & {"loss-diverges", "loss-climbs-above-guessing"}) is diverges


def test_a_flat_loss_of_a_loop_that_prints_its_epoch_is_a_finding(tmp_path: Path) -> None:
    noise = [0.05 * math.sin(13 * i * i) for i in range(45)]
    flat = [
        f"epoch {i // 15} step {i + 1}/45 loss {2.3 + noise[i]:.4f} lr 2e-4 grad_norm 1.6"
        for i in range(45)
    ]
    assert "flat-loss" in found(tmp_path / "flat.log", flat)
    learns = [
        f"epoch {i // 15} step {i + 1}/45 loss {2.3 - i / 100 + noise[i]:.4f} lr 2e-4 grad_norm 1.6"
        for i in range(45)
    ]
    assert "flat-loss" not in found(tmp_path / "learns.log", learns)
