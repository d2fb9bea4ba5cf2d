from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerState
from transformers.integrations.integration_utils import TensorBoardCallback

from tests.auditing import tiny
from tests.training.watched import prompts, trainer, watcher
from truetune.generation.answer_samples import Answer, SamplingPass
from truetune.training.watch.experiment_trackers import TABLE_COLUMNS, send_pass_to_trackers
from truetune.training.watch.sample_answers import make_answer_sampler


def test_tensorboard_gets_curves_and_samples(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = trainer(
        None,
        watcher(tmp_path),
        report_to="tensorboard",
        output_dir=str(tmp_path / "out"),
        max_steps=4,
    )
    run.train()
    (events,) = (tmp_path / "out").rglob("events.out.tfevents.*")
    found = EventAccumulator(str(events), size_guidance={"tensors": 0})
    found.Reload()
    assert [event.step for event in found.Scalars("train/answers/stopped")] == [0, 2, 4]
    texts = [
        event.tensor_proto.string_val[0].decode()
        for event in found.Tensors("answers/samples/text_summary")
    ]
    assert len(texts) == 3
    assert texts[0].startswith("| " + " | ".join(TABLE_COLUMNS) + " |\n| --- |")
    assert len(texts[0].splitlines()) == 10
    assert "How many figs are in box 3, on shelf 0?" in texts[0]


def test_wandb_gets_curves_and_samples(tmp_path: Path, monkeypatch: Any) -> None:
    wandb = pytest.importorskip("wandb")
    settings = {
        "MODE": "offline",
        "DIR": str(tmp_path),
        "SILENT": "true",
        "CONSOLE": "off",
        "DISABLE_GIT": "true",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    run = trainer(None, watcher(tmp_path), report_to="wandb", max_steps=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run.train()
        folder = Path(wandb.run.dir)
        summary = dict(wandb.run.summary)
        wandb.finish()
    tables = sorted(folder.rglob("*.table.json"))
    assert len(tables) == 2
    table = json.loads(tables[0].read_text())
    assert table["columns"] == list(TABLE_COLUMNS)
    assert len(table["data"]) == 8
    assert "train/answers/stopped" in summary


class Broken:
    """A writer that has lost its connection."""

    def add_scalar(self, *_: Any) -> None:
        raise ConnectionError("no route to it")


def test_a_tracker_that_fails_is_named() -> None:
    look = SamplingPass(
        3,
        (
            make_answer_sampler(tiny.tokenizer(), [2], None).score(
                prompts(1)[0], Answer((5,), "five", 2, 0.9)
            ),
        ),
        1.0,
    )
    refused = send_pass_to_trackers(
        look, [TensorBoardCallback(Broken()), Broken()], None, TrainerState(), None, None
    )
    assert refused == ["TensorBoardCallback: ConnectionError: no route to it"]
