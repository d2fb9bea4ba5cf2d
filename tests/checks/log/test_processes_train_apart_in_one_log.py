"""Outputs into which several trainings write at once, and outputs of one run that repeat their records."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from truetune.checks.diagnose_log import diagnose

START = (
    "***** Running training *****\n  Num examples = 4,000\n  Instantaneous batch size per device = 4\n"
    "  Total train batch size (w. parallel, distributed & accumulation) = {rows}\n"
    "  Gradient Accumulation steps = 4\n"
)


def trainer(copies: int, *, jitter: float = 1e-4, has_rate: bool = True) -> list[str]:
    """What as many trainings with one seed print."""
    draw = random.Random(3)
    lines = []
    for step in range(1, 21):
        loss = 1.7 - 0.03 * step + draw.uniform(-0.05, 0.05)
        for _ in range(copies):
            own = loss + draw.uniform(-jitter, jitter)
            rate = f", 'learning_rate': {step * 1e-6:.3g}" if has_rate else ""
            lines.append(
                f"{{'loss': {own:.4f}, 'grad_norm': {own * 2:.6f}{rate}, 'epoch': {step / 100:.2f}}}\n"
            )
    return lines


def loop(copies: int, *, spread: float, head: str = "") -> str:
    """What the processes of a hand-written loop print."""
    draw = random.Random(4)
    lines = [head] * copies
    for step in range(10, 210, 10):
        loss = 2.0 - step / 300 + draw.uniform(-0.05, 0.05)
        for rank in range(copies):
            own = loss + draw.uniform(-spread, spread)
            lines.append(f'{{"step": {step}, "loss": {own:.5f}, "lr": 1e-05, "rank": {rank}}}\n')
    return "".join(lines)


def again() -> str:
    """A run that was started a second time, into the same file."""
    return START.format(rows=16) + "".join(trainer(1)) + START.format(rows=16) + "".join(trainer(1))


def drifted() -> str:
    """Trainings of which one is a record ahead."""
    one, other = trainer(1), trainer(1, jitter=2e-4)
    mixed = [one[0]]
    for early, late in zip(one[1:], other, strict=False):
        mixed += [early, late]
    return START.format(rows=16) * 2 + "".join(mixed)


FIRING = {
    "four of srun": (START.format(rows=16) * 4 + "".join(trainer(4)), "error"),
    "without a start": ("".join(trainer(4)), "warning"),
    "one ahead": (drifted(), "error"),
    "world of one": (loop(4, spread=1e-4, head="world 1 rows 8416 steps 4208\n"), "error"),
    "example scripts": (
        "Process rank: 0, device: cuda:0, n_gpu: 1, distributed training: False\n" * 2
        + "".join(trainer(2)),
        "error",
    ),
    "prefixes of srun": (
        "".join(f"{n % 4}: {line}" for n, line in enumerate(trainer(4))),
        "warning",
    ),
}
SILENT = {
    "one run": START.format(rows=64) + "".join(trainer(1)),
    "one run on one GPU": START.format(rows=16) + "".join(trainer(1)),
    "each rank prints its own rows": loop(4, spread=0.1, head="world size: 4\n"),
    "each rank prints the mean": loop(4, spread=0.0, head="world size: 4\n"),
    "two handlers of one process": (START.format(rows=16) * 2 + "".join(trainer(2, jitter=0))),
    "started again": again(),
    "started twice before the first record": START.format(rows=16) * 2 + "".join(trainer(1)),
    "constant rate, rounded epoch": "".join(
        f"{{'loss': {1.5 - n / 100:.4f}, 'learning_rate': 1e-05, 'epoch': {n // 4 / 100:.2f}}}\n"
        for n in range(60)
    ),
    "micro-batches of one step": loop(4, spread=0.1, head=""),
}


def told(folder: Path, text: str) -> list[str]:
    """The severities of what the rule says of an output."""
    path = folder / "train.log"
    path.write_text(text, encoding="utf-8")
    findings = diagnose(path).findings
    return [one.severity for one in findings if one.code == "LOG145"]


@pytest.mark.parametrize("case", FIRING)
def test_several_trainings(case: str, tmp_path: Path) -> None:
    text, severity = FIRING[case]
    assert told(tmp_path, text) == [severity]


@pytest.mark.parametrize("case", SILENT)
def test_one_run(case: str, tmp_path: Path) -> None:
    assert told(tmp_path, SILENT[case]) == []
