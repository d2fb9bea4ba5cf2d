"""Steps that overflow at a loss scale that nothing lowers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.findings import Finding
from truetune.settings.run_spec import RunSpec
from truetune.troubleshooting.check_project import check_project

OVERFLOW = (
    "[2025-10-14 21:04:07,787] [INFO] [stage_1_and_2.py:2041:step] [deepspeed] OVERFLOW! Rank 0 Skipping step."
    " Attempted loss scale: {before}, reducing to {after}\n"
)
OLDER = (
    "[stage3.py:2210:_overflow_clean_up] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale:"
    " {before}, reducing to {after}\n"
)
DEEPSPEED_WITHOUT_ZERO = (
    "[2026-01-05 10:00:00,019] [INFO] [logging.py:96:log_dist] [Rank 0] Overflow detected. Skipping step."
    " Attempted loss scale: {before}, reducing to {after}\n"
)
APEX = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {after}\n"
FAIRSEQ = (
    "2026-01-05 10:00:00 | INFO | fairseq.trainer | NOTE: gradient overflow detected, ignoring gradient,"
    " setting loss scale to: {after}\n"
)
WAITING = (
    "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {before}, but hysteresis is 2."
    " Reducing hysteresis to 1\n"
)
DYNAMIC = (
    "[deepspeed] fp16 dynamic loss scale overflow! Skipping step."
    " Attempted loss scale: {before}, reducing to {after}\n"
)
RECORD = "{{'loss': {loss}, 'grad_norm': {norm}, 'learning_rate': {rate}, 'epoch': {epoch}}}\n"
COUNTER = "[logging.py:107:log_dist] [Rank 0] step={step}, skipped={skipped}, lr=[{rate}], mom=[[0.9, 0.999]]\n"


def record(step: int, *, norm: float = 0.0, rate: float = 0.0) -> str:
    return RECORD.format(loss=2.0 + step % 3 / 100, norm=norm, rate=rate, epoch=step / 100)


def log_of(line: str, scales: list[tuple[float, float]], *, steps: int = 0) -> str:
    """A log whose first steps overflow, the others being taken; DeepSpeed counts them at the end."""
    text = "".join(
        line.format(before=before, after=after) + record(step)
        for step, (before, after) in enumerate(scales)
    )
    taken = range(len(scales), max(steps, len(scales)))
    text += "".join(record(step, norm=1.2, rate=1e-5) for step in taken)
    total = max(steps, len(scales))
    return text + COUNTER.format(step=total, skipped=len(scales), rate=1e-5 if steps else 0.0)


def found(folder: Path, log: str, beside: dict[str, str] | None = None) -> list[Finding]:
    (folder / "slurm-1.out").write_text(log, encoding="utf-8")
    for name, text in (beside or {}).items():
        (folder / name).write_text(text, encoding="utf-8")
    return list(check_project([str(folder)], RunSpec()).findings)


FIXED = [(65536.0, 65536.0)] * 30


@pytest.mark.parametrize("line", [OVERFLOW, OLDER, DYNAMIC])
@pytest.mark.parametrize("scale", [65536, 4096.0, 128.0])
def test_a_fixed_scale_is_the_cause(tmp_path: Path, line: str, scale: float) -> None:
    findings = found(tmp_path, log_of(line, [(scale, scale)] * 30))
    codes = [one.code for one in findings]
    assert codes[0] == "LOG146"
    assert findings[0].severity == "error"
    assert "LOG005" not in codes
    assert not any("fp16-step-skipped" in text for one in findings for text in one.evidence)


@pytest.mark.parametrize(
    ("name", "settings", "line"),
    [
        ("ds.json", json.dumps({"fp16": {"enabled": True, "loss_scale": 65536}}, indent=1), 4),
        (
            "zero.json",
            json.dumps({"zero_optimization": {"stage": 2}, "fp16": {"loss_scale": 65536.0}}),
            1,
        ),
    ],
)
def test_the_line_of_the_settings_is_named(
    tmp_path: Path, name: str, settings: str, line: int
) -> None:
    first = found(tmp_path, log_of(OVERFLOW, FIXED), {name: settings})[0]
    case = first.cases[0]
    assert (Path(case.file or "").name, case.line) == (name, line)


@pytest.mark.parametrize("scale", [0, 1024])
def test_a_file_with_another_scale_is_not_named(tmp_path: Path, scale: int) -> None:
    settings = json.dumps({"fp16": {"enabled": True, "loss_scale": scale}})
    first = found(tmp_path, log_of(OVERFLOW, FIXED), {"ds.json": settings})[0]
    assert [Path(case.file or "").name for case in first.cases] == ["slurm-1.out"]


def test_some_steps_that_are_skipped_are_a_warning(tmp_path: Path) -> None:
    findings = found(tmp_path, log_of(OVERFLOW, FIXED, steps=100))
    assert [one.severity for one in findings if one.code == "LOG146"] == ["warning"]


@pytest.mark.parametrize(
    "log",
    [
        log_of(OVERFLOW, [(65536.0 / 2**n, 32768.0 / 2**n) for n in range(10)], steps=60),
        log_of(OVERFLOW, [(65536.0, 65536.0), (65536.0, 32768.0)] * 4, steps=60),
        log_of(OVERFLOW, [(65536.0, 65536.0)] * 3, steps=60),
        log_of(OVERFLOW, [(1.0, 1.0)] * 30),
        log_of(OVERFLOW, [(256.0, 256.0)] * 8, steps=200),
        log_of(OVERFLOW, [], steps=60),
    ],
)
def test_a_scale_that_is_searched_or_a_few_steps(tmp_path: Path, log: str) -> None:
    assert "LOG146" not in {one.code for one in found(tmp_path, log)}


def test_steps_that_are_all_skipped_are_no_frozen_parameters(tmp_path: Path) -> None:
    scales = [(65536.0 / 2**n, 32768.0 / 2**n) for n in range(17)] + [(1.0, 1.0)] * 8
    codes = {one.code for one in found(tmp_path, log_of(OVERFLOW, scales))}
    assert codes.isdisjoint({"LOG005", "LOG146"})


def test_norms_of_zero_without_an_overflow_are_frozen_parameters(tmp_path: Path) -> None:
    log = "".join(record(step, rate=1e-5) for step in range(30))
    assert "LOG005" in {one.code for one in found(tmp_path, log)}


def halved(first: float, least: float, times_at_least: int) -> list[tuple[float, float]]:
    """A scale that is halved down to the least, and overflows there."""
    scales = []
    while first > least:
        scales.append((first, max(first / 2, least)))
        first /= 2
    return [*scales, *[(least, least)] * times_at_least]


NO_LEAST = [(65536.0 / 2**n, 32768.0 / 2**n) for n in range(40)]


@pytest.mark.parametrize(
    ("log", "severity"),
    [
        (log_of(DEEPSPEED_WITHOUT_ZERO, halved(4096, 1, 40)), "error"),
        (log_of(OVERFLOW, halved(2.0**32, 1.0, 30)), "error"),
        (log_of(OVERFLOW, halved(65536, 128, 40)), "error"),
        (log_of(APEX, NO_LEAST), "error"),
        (log_of(FAIRSEQ, NO_LEAST), "error"),
        (WAITING.format(before=4096, after=4096) + log_of(OVERFLOW, halved(4096, 1, 40)), "error"),
        (log_of(OVERFLOW, [(1.0, 1.0)] * 30), "error"),
        (log_of(OVERFLOW, halved(65536, 1, 40), steps=120), "warning"),
    ],
)
def test_a_scale_that_overflows_at_its_least(tmp_path: Path, log: str, severity: str) -> None:
    severities = {one.code: one.severity for one in found(tmp_path, log)}
    assert severities.get("LOG063") == severity
    assert severities.keys().isdisjoint({"LOG146", "LOG005", "LOG023", "LOG006"})


@pytest.mark.parametrize(
    "log",
    [
        log_of(DEEPSPEED_WITHOUT_ZERO, halved(4096, 128, 0), steps=60),
        log_of(APEX, NO_LEAST[:12], steps=60),
        log_of(FAIRSEQ, NO_LEAST[:4], steps=60),
        log_of(OVERFLOW, halved(65536, 1, 2), steps=300),
        log_of(OVERFLOW, halved(65536, 1, 8), steps=400),
        WAITING.format(before=4096, after=4096) + log_of(OVERFLOW, halved(4096, 512, 0), steps=60),
    ],
)
def test_a_search_that_ends(tmp_path: Path, log: str) -> None:
    assert "LOG063" not in {one.code for one in found(tmp_path, log)}
