"""Losses that are added up over accumulated batches, whose number the trainer prints at its start, or
a file beside the log holds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.diagnose_log import diagnose

TRANSFORMERS = """***** Running training *****
  Num examples = 12,000
  Gradient Accumulation steps = {steps}
  Total optimization steps = 60
"""
UNSLOTH = """O^O/ \\_/ \\    Batch size per device = 2 | Gradient accumulation steps = {steps}
\\        /    Data Parallel GPUs = 1 | Total batch size (2 x {steps} x 1) = 8
"""


def _log(folder: Path, banner: str, steps: int, factor: float, evaluations: int) -> Path:
    """A log whose evaluation loss falls by a tenth, beside a training loss that is so many times as large."""
    lines = [banner.format(steps=steps)]
    every = 60 // evaluations
    for step in range(1, 61):
        level = 2.0 - 0.2 * step / 60
        lines.append(
            f"{{'loss': {factor * level + 0.02 * (-1) ** step:.4f}, 'grad_norm': 8.1,"
            f" 'learning_rate': 1e-05, 'epoch': {step / 60:.2f}}}\n"
        )
        if step % every == 0:
            lines.append(f"{{'eval_loss': {level:.4f}, 'epoch': {step / 60:.2f}}}\n")
    path = folder / "train.log"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _is_found(path: Path) -> bool:
    return any(one.rule == "loss-is-a-sum" for one in diagnose(path).findings)


@pytest.mark.parametrize(
    ("banner", "steps", "factor", "evaluations"),
    [
        (TRANSFORMERS, 8, 8.0, 4),
        (TRANSFORMERS, 16, 15.6, 2),
        (TRANSFORMERS, 4, 4.1, 3),
        (UNSLOTH, 4, 4.0, 5),
        (UNSLOTH, 32, 31.0, 4),
    ],
)
def test_a_loss_of_as_many_batches_as_are_accumulated(
    banner: str, steps: int, factor: float, evaluations: int, tmp_path: Path
) -> None:
    assert _is_found(_log(tmp_path, banner, steps, factor, evaluations))


@pytest.mark.parametrize(
    ("steps", "factor", "evaluations"),
    [(8, 1.0, 4), (8, 2.0, 4), (2, 2.0, 4), (8, 8.0, 1), (4, 3.4, 4)],
)
def test_other_ratios_and_single_evaluations(
    steps: int, factor: float, evaluations: int, tmp_path: Path
) -> None:
    assert not _is_found(_log(tmp_path, TRANSFORMERS, steps, factor, evaluations))


OWN = {
    "learning_rate": 2e-4,
    "num_train_epochs": 3,
    "logging_steps": 5,
    "gradient_accumulation_steps": 8,
}


@pytest.mark.parametrize(
    ("name", "content", "is_found"),
    [
        ("args.json", OWN, True),
        ("hparams.yaml", {"data": "rows.jsonl", "training": OWN}, True),
        ("config.yaml", {"wandb_version": 1, **{k: {"value": v} for k, v in OWN.items()}}, True),
        ("args.json", {**OWN, "gradient_accumulation_steps": 2}, False),
        # One name alone may mean anything, and rows are no settings.
        ("meta.json", {"gradient_accumulation_steps": 8}, False),
        ("rows.json", [OWN], False),
    ],
)
def test_the_number_of_batches_in_the_script_s_own_file(
    name: str, content: Any, is_found: bool, tmp_path: Path
) -> None:
    path = _log(tmp_path, "", 8, 7.3, 2)
    (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    assert _is_found(path) == is_found


def test_a_file_that_contradicts_the_log_is_not_named(tmp_path: Path) -> None:
    path = _log(tmp_path, TRANSFORMERS, 8, 7.9, 4)
    (tmp_path / "args.json").write_text(json.dumps({**OWN, "gradient_accumulation_steps": 10}))
    (found,) = [one for one in diagnose(path).findings if one.rule == "loss-is-a-sum"]
    assert "summed over accumulated batches" in found.message
