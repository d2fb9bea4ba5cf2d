"""KTO runs of one side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import truetune

CHOSEN = {"rewards/chosen": 0.3, "logps/chosen": -90.0}
REJECTED = {"rewards/rejected": -0.2, "logps/rejected": -80.0}


def messages(folder: Path, records: list[dict[str, float]]) -> list[str]:
    lines = (
        json.dumps({"step": n, "loss": 0.5 - n / 1000, **one}) for n, one in enumerate(records, 1)
    )
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    report = truetune.check(
        [str(folder / "log.jsonl")], select=["kto-sees-one-side"], allow_unjudged=True
    )
    return [finding.message for finding in report.findings]


@pytest.mark.parametrize(("side", "word"), [(CHOSEN, "no undesirable"), (REJECTED, "no desirable")])
def test_one_side(tmp_path: Path, side: dict[str, float], word: str) -> None:
    found = messages(tmp_path, [{"kl": 1.0, **side}] * 12)
    assert len(found) == 1
    assert word in found[0]


@pytest.mark.parametrize(
    "records",
    [
        [{"kl": 1.0, **CHOSEN, **REJECTED}] * 12,
        [{"kl": 1.0, **CHOSEN}, {"kl": 1.0, **REJECTED}] * 12,
        [{"kl": 1.0, **CHOSEN}] * 11 + [{"kl": 1.0, **CHOSEN, **REJECTED}],
        [{"kl": 1.0, **CHOSEN}] * 5,
        [CHOSEN] * 12,
        [{"kl": 1.0, "reward": 0.2, **CHOSEN}] * 12,
        [{"kl": 1.0, "rewards/margins": 0.4, **CHOSEN}] * 12,
    ],
)
def test_sound_or_unknown(tmp_path: Path, records: list[dict[str, float]]) -> None:
    assert messages(tmp_path, records) == []
