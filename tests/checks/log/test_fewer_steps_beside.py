"""Two states of one training on other numbers of GPUs, copied into one folder under names of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.diagnose_log import diagnose


def write_state(
    path: Path,
    steps: int,
    *,
    loss: float,
    flos: float = 3.1e17,
    epochs: float = 2.0,
    rate: float = 1e-4,
    planned: int | None = None,
) -> Path:
    """A state of the Trainer with a loss that falls to a value."""
    history = [
        {
            "step": n * steps // 20,
            "epoch": epochs * n / 20,
            "loss": 2.0 - (2.0 - loss) * n / 20,
            "learning_rate": rate * (1 - n / 21),
        }
        for n in range(1, 21)
    ]
    history.append({"step": steps, "epoch": epochs, "eval_loss": loss})
    state = {
        "epoch": epochs,
        "global_step": steps,
        "max_steps": planned or steps,
        "total_flos": flos,
        "log_history": history,
    }
    path.write_text(json.dumps(state), encoding="utf-8")
    return path


def told(path: Path) -> list[str]:
    """What the rule says of a run."""
    return [one.message for one in diagnose(path).findings if one.code == "LOG039"]


@pytest.mark.parametrize(
    ("one", "eight"),
    [
        ("trainer_state_1gpu.json", "trainer_state_8gpu.json"),
        ("single.trainer_state.json", "ddp.trainer_state.json"),
        ("trainer_state.json", "trainer_state_new.json"),
    ],
)
def test_states_of_other_names(tmp_path: Path, one: str, eight: str) -> None:
    write_state(tmp_path / one, 784, loss=0.98)
    larger = write_state(tmp_path / eight, 98, loss=1.32)
    found = told(larger)
    assert len(found) == 1
    assert f"the run made 98 optimizer steps over 2 epochs, but {one} made 784" in found[0]
    assert "about 8 times the rows" in found[0]
    assert told(tmp_path / one) == []


def test_runs_in_folders_that_did_not_measure_their_rows(tmp_path: Path) -> None:
    for name, steps, loss in (("a", 400, 0.9), ("b", 100, 1.3)):
        (tmp_path / name).mkdir()
        write_state(tmp_path / name / "trainer_state.json", steps, loss=loss)
    assert len(told(tmp_path / "b")) == 1
    assert told(tmp_path / "a") == []


@pytest.mark.parametrize(
    "other",
    [
        {"steps": 784, "loss": 1.33},
        {"steps": 784, "loss": 0.98, "flos": 9.0e17},
        {"steps": 784, "loss": 0.98, "flos": 0.0},
        {"steps": 784, "loss": 0.98, "epochs": 3.0},
        {"steps": 784, "loss": 0.98, "rate": 3e-4},
        {"steps": 784, "loss": 0.98, "planned": 2000},
        {"steps": 120, "loss": 0.98},
    ],
)
def test_runs_that_can_not_be_compared(tmp_path: Path, other: dict[str, Any]) -> None:
    settings = dict(other)
    steps = settings.pop("steps")
    write_state(tmp_path / "trainer_state_a.json", steps, **settings)
    assert told(write_state(tmp_path / "trainer_state_b.json", 98, loss=1.32)) == []
