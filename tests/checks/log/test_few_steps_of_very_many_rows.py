"""Runs of a handful of steps by what their trainers print, and runs that have steps enough or learned in spite of them."""

# ruff: noqa: E501 - a case is one line
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import truetune

RULE = "few-steps-of-very-many-rows"
BANNER = """***** Running training *****
  Num examples = {rows:,}
  Num Epochs = {epochs}
  Instantaneous batch size per device = {batch}
  Total train batch size (w. parallel, distributed & accumulation) = {a_step}
  Gradient Accumulation steps = {accumulation}
  Total optimization steps = {steps}
"""
UNSLOTH = """==((====))==  Unsloth - 2x faster free finetuning | Num GPUs used = {processes}
   \\\\   /|    Num examples = {rows:,} | Num Epochs = {epochs} | Total steps = {steps}
O^O/ \\_/ \\    Batch size per device = {batch} | Gradient accumulation steps = {accumulation}
\\        /    Data Parallel GPUs = {processes} | Total batch size ({batch} x {accumulation} x {processes}) = {a_step}
"""
PREFIXED = (
    "\n".join(
        "[INFO|trainer.py:2519] 2025-09-16 14:02:48,445 >> " + line for line in BANNER.splitlines()
    )
    + "\n"
)
SUMMARY = "{{'train_runtime': 38.4, 'train_samples_per_second': 23.4, 'train_loss': 2.1, 'epoch': {epochs}}}\n"


def records(*losses: float) -> str:
    """Lines that a trainer prints for these losses."""
    return "".join(
        f"{{'loss': {loss}, 'grad_norm': 1.1, 'learning_rate': 1e-05, 'epoch': {n}.0}}\n"
        for n, loss in enumerate(losses, 1)
    )


def found(
    folder: Path,
    rows: int,
    batch: int,
    accumulation: int,
    processes: int,
    epochs: int,
    *,
    banner: str = BANNER,
    losses: tuple[float, ...] = (),
    steps: int = 0,
) -> list[str]:
    a_step = batch * accumulation * processes
    made = steps or epochs * max(1, -(-rows // a_step))
    text = (banner + "{records}" + SUMMARY).format(
        rows=rows,
        batch=batch,
        accumulation=accumulation,
        processes=processes,
        epochs=epochs,
        a_step=a_step,
        steps=made,
        records=records(*losses),
    )
    (folder / "train.log").write_text(text, encoding="utf-8")
    report = truetune.check([str(folder / "train.log")], select=[RULE], allow_unjudged=True)
    return [finding.message for finding in report.findings]


@pytest.mark.parametrize(
    ("sizes", "more", "part"),
    [
        ((1200, 8, 8, 8, 3), {}, "9 optimizer steps over 1,200 rows"),
        ((300, 4, 4, 8, 3), {"losses": (2.21, 2.14, 1.96)}, "4 x 4 x 8 = 128"),
        ((300, 4, 4, 8, 3), {"banner": PREFIXED, "losses": (2.21, 1.96)}, "the batch grew with the number of processes"),
        ((52, 8, 8, 1, 3), {}, "3 optimizer steps over 52 rows, too few to learn from; a step uses"),
        ((500, 4, 4, 4, 2), {"losses": (1.9, 1.7)}, "16 optimizer steps over 500 rows"),
        ((40, 2, 16, 1, 1), {"banner": UNSLOTH}, "2 optimizer steps over 40 rows"),
    ],
)  # fmt: skip
def test_runs_of_a_handful_of_steps(
    sizes: tuple[int, int, int, int, int], more: dict[str, Any], part: str, tmp_path: Path
) -> None:
    (message,) = found(tmp_path, *sizes, **more)
    assert part in message


@pytest.mark.parametrize(
    ("sizes", "more"),
    [
        ((1200, 8, 1, 1, 3), {}),
        ((1200, 8, 8, 1, 1), {}),
        ((300, 4, 4, 8, 3), {"losses": (2.21, 1.4, 1.1)}),
        ((50000, 4, 4, 1, 1), {"steps": 5}),
        ((500, 16, 1, 1, 1), {"losses": (1.9, 1.5)}),
        ((4000, 4, 4, 8, 1), {"losses": (1.9, 1.7)}),
    ],
)
def test_runs_with_steps_enough(
    sizes: tuple[int, int, int, int, int], more: dict[str, Any], tmp_path: Path
) -> None:
    assert found(tmp_path, *sizes, **more) == []
