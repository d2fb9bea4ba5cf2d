from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import transformers

from tests.auditing import tiny
from tests.training.watched import trainer, watcher
from truetune.generation import sampling_pass_files
from truetune.training.watch.losses_by_source import SourceLosses


class Stop(Exception):
    """What ends a run in the middle."""


class Killer(transformers.TrainerCallback):
    """Ends a run behind a step, as a crash would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise Stop


def losses(run: Any) -> list[float]:
    return [record["loss"] for record in run.state.log_history if "loss" in record]


def weights(run: Any) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in run.model.parameters()]


def steps(folder: Path) -> list[int]:
    return [look.step for look, _ in sampling_pass_files.read_passes_with_new_token_limits(folder)]


def test_training_is_the_same_to_the_bit(tmp_path: Path) -> None:
    plain = trainer()
    plain.train()
    after = torch.rand(1)
    seen = trainer(None, watcher(tmp_path))
    seen.train()
    assert steps(tmp_path) == [0, 2, 4, 6]
    assert losses(seen) == losses(plain)
    assert all(map(torch.equal, weights(seen), weights(plain)))
    assert torch.equal(torch.rand(1), after)


def test_looks_are_stored_whole(tmp_path: Path) -> None:
    said: list[str] = []
    callback = watcher(tmp_path, said)
    trainer(None, callback).train()
    assert [
        look for look, _ in sampling_pass_files.read_passes_with_new_token_limits(tmp_path)
    ] == callback.looks
    rows = pq.read_table(tmp_path / "samples" / "step-00000006.parquet").to_pylist()
    assert len(rows) == 8
    assert {
        "step",
        "prompt",
        "answer",
        "reference",
        "file",
        "line",
        "stop_probability",
        "stopped",
    } <= rows[0].keys()
    assert rows[3]["prompt"] == "How many figs are in box 3, on shelf 0?"
    assert rows[3]["line"] == 4
    record = json.loads((tmp_path / "watch.json").read_text())
    assert [look["step"] for look in record["looks"]] == [0, 2, 4, 6]
    assert 0 < record["share_of_the_time"] <= 1
    assert [line for line in said if line.startswith("step 4: 8 prompts, stopped 0")]
    assert said[-1].startswith("watching: 4 looks took")


def test_a_killed_run_goes_on_without_a_gap_or_a_duplicate(tmp_path: Path) -> None:
    whole, killed = (str(tmp_path / name) for name in ("whole", "killed"))
    trainer(None, watcher(tmp_path / "a"), output_dir=whole).train()
    saving = {"save_strategy": "steps", "save_steps": 3, "output_dir": killed}
    with pytest.raises(Stop):
        trainer(None, watcher(tmp_path / "b"), Killer(5), **saving).train()
    assert steps(tmp_path / "b") == [0, 2, 4]
    said: list[str] = []
    resumed = watcher(tmp_path / "b", said)
    trainer(None, resumed, **saving).train(resume_from_checkpoint=True)
    assert "sampling passes of an earlier run, after step 3" in said[0]
    assert said[0].endswith(": 1")
    assert [look.step for look in resumed.looks][:2] == [0, 2]
    first, second = (
        sampling_pass_files.read_passes_with_new_token_limits(tmp_path / name) for name in "ab"
    )
    assert steps(tmp_path / "b")[-1] == 6
    assert [s.answer for s in first[-1][0].samples] == [s.answer for s in second[-1][0].samples]
    found = [
        json.loads(line) for line in (tmp_path / "b" / "findings.jsonl").read_text().splitlines()
    ]
    assert len({(record["rule"], record["severity"]) for record in found}) == len(found) > 0


def test_a_new_run_in_an_old_folder_starts_anew(tmp_path: Path) -> None:
    trainer(None, watcher(tmp_path)).train()
    said: list[str] = []
    trainer(None, watcher(tmp_path, said), max_steps=2).train()
    assert "sampling passes of an earlier run, after step 0, are removed" in said[0]
    assert said[0].endswith(": 3")
    assert steps(tmp_path) == [0, 2]


@pytest.fixture(scope="module")
def speaker() -> Any:
    """A model that has learned the tiny chats, and to stop."""
    run = trainer(
        model=tiny.model(),
        max_steps=80,
        learning_rate=1e-2,
        lr_scheduler_type="constant",
        per_device_train_batch_size=8,
        logging_steps=50,
    )
    run.train()
    return {name: tensor.clone() for name, tensor in run.model.state_dict().items()}


def taught(state: dict[str, torch.Tensor]) -> Any:
    model = tiny.model()
    model.load_state_dict(state)
    return model


def test_a_run_on_good_labels_finds_nothing(tmp_path: Path, speaker: Any) -> None:
    callback = watcher(tmp_path, every=20)
    trainer(None, callback, model=taught(speaker), max_steps=60).train()
    assert [sum(s.scores.stopped for s in look.samples) for look in callback.looks] == [8, 8, 8, 8]
    assert callback.findings == ()
    assert not (tmp_path / "findings.jsonl").exists()


def test_a_run_that_unlearns_to_stop_is_ended(tmp_path: Path, speaker: Any) -> None:
    """Rows whose stop tokens are lost, one after the other in a stream."""
    rows = [
        {name: [*ids[:-2], 5, 6] for name, ids in row.items()} for row in tiny.encoded(tiny.chats())
    ]
    assert {row["labels"][-2] for row in tiny.encoded(tiny.chats())} == {
        tiny.tokenizer().eos_token_id
    }
    said: list[str] = []
    callback = watcher(tmp_path, said, every=10, stop_on="warning")
    run = trainer(
        rows,
        callback,
        model=taught(speaker),
        max_steps=100,
        learning_rate=5e-3,
        save_strategy="steps",
        save_steps=1000,
    )
    run.train()
    assert callback.stopped_by is not None
    assert callback.stopped_by.rule == "stop-rate-falls"
    assert run.state.global_step < 100
    assert list(Path(run.args.output_dir).glob("checkpoint-*/model.safetensors"))
    found = [json.loads(line) for line in (tmp_path / "findings.jsonl").read_text().splitlines()]
    assert [record["rule"] for record in found if record["stopped"]] == ["stop-rate-falls"]
    assert json.loads((tmp_path / "watch.json").read_text())["stopped_by"] == "stop-rate-falls"
    assert any(line.startswith("the run ends at step") for line in said)


def test_a_small_budget_leaves_the_first_look_and_the_last(tmp_path: Path) -> None:
    said: list[str] = []
    callback = watcher(tmp_path, said, count=12, budget=1e-6)
    trainer(None, callback).train()
    assert steps(tmp_path) == [0, 6]
    assert callback.limit == 16
    assert {len(look.samples) for look in callback.looks} == {8}
    assert "12 prompts become 8" in said[0]
    assert "the first and the last one are always made" in said[-1]
    assert json.loads((tmp_path / "watch.json").read_text())["notes"]


def test_a_model_that_cannot_generate_is_trained_all_the_same(tmp_path: Path) -> None:
    model = tiny.model()
    vars(model)["generate"] = None
    said: list[str] = []
    run = trainer(None, watcher(tmp_path, said), model=model)
    run.train()
    assert run.state.global_step == 6
    assert said == [
        "watching: answers are not watched: TypeError: 'NoneType' object is not callable"
    ]
    assert not list(tmp_path.glob("samples/*"))


def test_no_prompts_no_looks(tmp_path: Path) -> None:
    said: list[str] = []
    trainer(None, watcher(tmp_path, said, count=0)).train()
    assert not said
    assert not list(tmp_path.iterdir())


def test_a_run_of_one_step(tmp_path: Path) -> None:
    trainer(None, watcher(tmp_path, every=None), max_steps=1).train()
    assert steps(tmp_path) == [0, 1]


def test_losses_begin_with_the_first_step(tmp_path: Path) -> None:
    run = trainer(None, watcher(tmp_path, count=0), max_steps=1)
    run.ledger = SourceLosses()
    run.ledger.add(torch.ones(1), torch.ones(1, dtype=torch.uint8), torch.ones(1))
    run.train()
    assert run.ledger.take() == {}


def test_a_preference_trainer_is_watched(tmp_path: Path) -> None:
    callback = watcher(tmp_path)
    run = tiny.dpo()
    run.add_callback(callback)
    run.train()
    assert steps(tmp_path) == [0, 2, 4]
    assert callback.watched(run.state).losses == ()
