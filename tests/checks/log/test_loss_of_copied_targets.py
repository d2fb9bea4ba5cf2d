"""Which losses on new rows say that the target can be copied, and which do not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import truetune

FALL = np.geomspace(2.2, 0.06, 20)
NOISE = np.random.default_rng(3)
SEEN = np.geomspace(0.05, 0.003, 20)
COPIED = {
    "numbered epochs": [*((one, 0) for one in FALL), *((one, 1) for one in SEEN)],
    "one epoch": [(one, n / 21) for n, one in enumerate(FALL)],
    "slower": [(one, n / 40) for n, one in enumerate(np.geomspace(3.0, 0.03, 38))],
    "with the later epochs": [
        (one, (n + 1) / 20) for n, one in enumerate([*np.geomspace(1.5, 0.05, 18), *SEEN])
    ],
    "steep": [
        (one, n / 21) for n, one in enumerate([*np.geomspace(4.0, 0.09, 15), 0.08, 0.07, 0.06])
    ],
}
OTHER = {
    "labels": [(one, n / 21) for n, one in enumerate(FALL * NOISE.exponential(1.0, 20))],
    "free text": [(one, n / 21) for n, one in enumerate(np.linspace(2.2, 1.4, 20))],
    "continued": [(one, n / 21) for n, one in enumerate(np.geomspace(0.4, 0.05, 20))],
    "by heart": [(one, (n + 1) / 4) for n, one in enumerate(FALL)],
    "without epochs": [(one, None) for one in FALL],
    "structured answers": [(one, n / 21) for n, one in enumerate(np.geomspace(1.2, 0.2, 20))],
    "few records": [(one, n / 6) for n, one in enumerate(np.geomspace(2.0, 0.05, 5))],
}


def names(records: list[tuple[float, float | None]], folder: Path) -> set[str]:
    lines = [
        {"step": n + 1, "loss": float(loss), "epoch": epoch}
        for n, (loss, epoch) in enumerate(records)
    ]
    text = "\n".join(
        json.dumps({key: one for key, one in line.items() if one is not None}) for line in lines
    )
    (folder / "train.log").write_text(text + "\n", encoding="utf-8")
    return {one.rule for one in truetune.diagnose(str(folder / "train.log")).findings}


@pytest.mark.parametrize("records", COPIED.values(), ids=COPIED)
def test_a_smooth_fall_to_hundredths(
    records: list[tuple[float, float | None]], tmp_path: Path
) -> None:
    assert "shortcut-loss" in names(records, tmp_path)


@pytest.mark.parametrize("records", OTHER.values(), ids=OTHER)
def test_other_low_losses(records: list[tuple[float, float | None]], tmp_path: Path) -> None:
    assert "shortcut-loss" not in names(records, tmp_path)
