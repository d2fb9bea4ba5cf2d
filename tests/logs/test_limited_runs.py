"""Runs that a limit of steps ended, and whose weights are used or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.diagnose_log import diagnose

BANNER = """***** Running training *****
  Num examples = {rows:,}
  Num Epochs = 1
  Total train batch size (w. parallel, distributed & accumulation) = 8
  Total optimization steps = {steps:,}
"""
SUMMARY = "{{'train_runtime': 90.0, 'train_loss': 1.2, 'epoch': {epoch:.4f}}}\n"


def _severities(folder: Path, rows: int, steps: int, last: str) -> list[str]:
    lines = [BANNER.format(rows=rows, steps=steps)]
    lines += [
        f"{{'loss': {2 - step / steps:.4f}, 'grad_norm': 1.0,"
        f" 'learning_rate': {2e-4 * (1 - step / steps):.3g}, 'epoch': {step * 8 / rows:.4f}}}\n"
        for step in range(1, steps + 1)
    ]
    lines.append(SUMMARY.format(epoch=steps * 8 / rows))
    path = folder / "train.log"
    path.write_text("".join([*lines, last]), encoding="utf-8")
    found = [one for one in diagnose(path).findings if one.rule == "run-ended-after-few-steps"]
    return [one.severity for one in found]


@pytest.mark.parametrize(
    ("rows", "steps", "last"),
    [
        (48_000, 60, "saved LoRA adapter to out/\n"),
        (20_000, 30, "Pushing model to the hub\n"),
        (90_000, 100, "Unsloth: Merging weights ...\nexported GGUF to out/m.gguf\n"),
        (60_000, 50, "Saving model checkpoint to out/checkpoint-50\nDone.\n"),
    ],
)
def test_weights_of_a_trial_that_are_used(rows: int, steps: int, last: str, tmp_path: Path) -> None:
    assert _severities(tmp_path, rows, steps, last) == ["warning"]


@pytest.mark.parametrize(
    ("rows", "steps", "last", "severities"),
    [
        (48_000, 60, "", ["info"]),
        (48_000, 60, "Peak reserved memory = 9.4 GB.\n", ["info"]),
        (9_800, 60, "saved LoRA adapter to out/\n", ["info"]),
        (400, 50, "saved LoRA adapter to out/\n", []),
        (90_000, 400, "saved LoRA adapter to out/\n", []),
    ],
)
def test_a_trial_and_a_run(
    rows: int, steps: int, last: str, severities: list[str], tmp_path: Path
) -> None:
    assert _severities(tmp_path, rows, steps, last) == severities
