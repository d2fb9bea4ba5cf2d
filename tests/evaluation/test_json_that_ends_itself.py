"""JSON that is not whole, of answers that stopped by themselves: nobody cut them off."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.evaluation.score_predictions import score

WHOLE = '{{"name": "house {number}", "floors": [1, 2], "total": {number}}}'
OPEN = '{{"name": "house {number}", "floors": [1, 2'


def notes(folder: Path, ends: dict[str, object]) -> str:
    """What is said of the form of answers of which every second one is open."""
    rows = [
        {
            "prompt": f"Give house {number} as JSON.",
            "prediction": (OPEN if number % 2 else WHOLE).format(number=number),
            "reference": WHOLE.format(number=number),
            **ends,
        }
        for number in range(20)
    ]
    path = folder / "preds.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = score(str(path), select=("answers-invalid-json-unlike-references",)).findings
    return "; ".join(f"{' '.join(one.evidence)} {one.remedy}" for one in found)


@pytest.mark.parametrize("ends", [{"finish_reason": "stop"}, {"stopped": True}])
def test_what_stopped_is_not_called_cut_off(tmp_path: Path, ends: dict[str, object]) -> None:
    text = notes(tmp_path, ends)
    assert "10 stop by themselves before its end" in text
    assert "cut off" not in text
    assert "max_new_tokens" not in text


@pytest.mark.parametrize("ends", [{"finish_reason": "length"}, {"stopped": False}, {}])
def test_what_a_limit_ended_or_nobody_knows_is(tmp_path: Path, ends: dict[str, object]) -> None:
    assert "10 are cut off" in notes(tmp_path, ends)
