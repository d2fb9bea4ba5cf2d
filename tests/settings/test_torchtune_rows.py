"""Rows of torchtune recipes: the local files are counted, and so the steps of a run are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import truetune
from truetune.settings.config import Config
from truetune.settings.stacks.read_config_of_any_stack import read_config

SCHEDULE = "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup"
RECIPE: dict[str, Any] = {
    "model": {"_component_": "torchtune.models.qwen2_5.lora_qwen2_5_0_5b", "lora_rank": 16},
    "tokenizer": {"_component_": "torchtune.models.qwen2_5.qwen2_5_tokenizer", "max_seq_len": 512},
    "optimizer": {"_component_": "torch.optim.AdamW", "lr": 2e-4},
    "lr_scheduler": {"_component_": SCHEDULE, "num_warmup_steps": 60},
    "batch_size": 4,
    "epochs": 2,
    "gradient_accumulation_steps": 4,
}
CHATS = {
    "_component_": "torchtune.datasets.chat_dataset",
    "source": "json",
    "data_files": "rows/a.jsonl",
    "split": "train",
    "conversation_column": "messages",
}
TASKS = {
    "_component_": "torchtune.datasets.instruct_dataset",
    "source": "json",
    "data_files": ["rows/a.jsonl", "rows/b.jsonl"],
    "column_map": {"input": "q", "output": "a"},
}
TEXTS = {
    "_component_": "torchtune.datasets.text_completion_dataset",
    "source": "rows",
    "column": "text",
}
KNOWN = {"chats": CHATS, "two files": TASKS, "list": [CHATS, TASKS]}
UNKNOWN = {
    "of the hub": {"_component_": "torchtune.datasets.alpaca_dataset"},
    "a part": {**CHATS, "split": "train[:10%]"},
    "a part of a list": [CHATS, {**TASKS, "split": "train[10:20]"}],
    "not here": {**CHATS, "data_files": "rows/c.jsonl"},
}


def _recipe(dataset: Any, folder: Path, **more: Any) -> Path:
    rows = folder / "rows"
    rows.mkdir()
    chat = [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Hello."}]
    for name, count in (("a", 96), ("b", 48)):
        line = json.dumps({"messages": chat, "q": "Hello?", "a": "Hello."}) + "\n"
        (rows / f"{name}.jsonl").write_text(line * count, encoding="utf-8")
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({**RECIPE, "dataset": dataset, **more}), encoding="utf-8")
    return path


def _rules(path: Path) -> set[str]:
    return {one.rule for one in truetune.check(path).findings}


@pytest.mark.parametrize("name", KNOWN)
def test_a_warmup_longer_than_the_run(name: str, tmp_path: Path) -> None:
    (found,) = [
        one
        for one in truetune.check(_recipe(KNOWN[name], tmp_path)).findings
        if one.rule == "warmup-longer-than-run"
    ]
    assert "steps, 3 to 10 % of the run" in found.remedy


@pytest.mark.parametrize("name", KNOWN)
def test_a_short_warmup(name: str, tmp_path: Path) -> None:
    schedule = {"_component_": SCHEDULE, "num_warmup_steps": 1}
    path = _recipe(KNOWN[name], tmp_path, lr_scheduler=schedule)
    assert "warmup-longer-than-run" not in _rules(path)


def test_many_epochs_make_room(tmp_path: Path) -> None:
    assert "warmup-longer-than-run" not in _rules(_recipe(CHATS, tmp_path, epochs=40))


def test_a_folder_of_files(tmp_path: Path) -> None:
    config: Config = read_config(_recipe(TEXTS, tmp_path))
    assert [Path(one).name for one in config.row_files] == ["rows"]


def test_packed_rows_make_fewer_steps(tmp_path: Path) -> None:
    # 96 short chats fit into a few sequences, so that 20 steps of warm-up are too many at any rate.
    path = _recipe({**CHATS, "packed": True}, tmp_path, epochs=20)
    assert "warmup-longer-than-run" in _rules(path)


@pytest.mark.parametrize("name", UNKNOWN)
def test_rows_that_are_not_known(name: str, tmp_path: Path) -> None:
    path = _recipe(UNKNOWN[name], tmp_path)
    assert read_config(path).row_files == ()
    assert "warmup-longer-than-run" not in _rules(path)


STYLED = {**CHATS, "conversation_style": "openai"}
READ = {
    "chats": (STYLED, "messages", {}),
    "another column": (
        {**STYLED, "conversation_column": "turns"},
        "messages",
        {"messages": "turns"},
    ),
    "tasks": (TASKS, "prompt-completion", {"prompt": "q", "completion": "a"}),
    "texts": (TEXTS, "text", {}),
    "two of one form": ([STYLED, {**STYLED, "data_files": "rows/b.jsonl"}], "messages", {}),
}


@pytest.mark.parametrize("name", READ)
def test_rows_are_read_with_the_form_of_their_builder(name: str, tmp_path: Path) -> None:
    dataset, form, columns = READ[name]
    spec = read_config(_recipe(dataset, tmp_path)).spec
    assert (bool(spec.data), spec.format, spec.map) == (True, form, columns)


@pytest.mark.parametrize("dataset", [CHATS, [STYLED, TASKS], {**STYLED, "split": "train[:9%]"}])
def test_rows_of_no_known_form_are_not_read(dataset: Any, tmp_path: Path) -> None:
    config = read_config(_recipe(dataset, tmp_path))
    assert not config.spec.data
    assert any("its rows are not read" in note for note in config.notes)


@pytest.mark.parametrize(
    ("limit", "more", "severities"),
    [
        (2, {}, ["warning"]),  # 6 steps in an epoch of 96 rows
        (1, {"epochs": 1}, ["warning"]),
        (2, {"epochs": 9, "shuffle": False}, ["warning"]),  # always the same rows
        (2, {"epochs": 9, "shuffle": True}, ["info"]),  # short epochs save more often
        (4, {}, []),
        (None, {}, []),
    ],
)
def test_epochs_that_end_before_half_of_their_rows(
    limit: int | None, more: dict[str, Any], severities: list[str], tmp_path: Path
) -> None:
    schedule = {"_component_": SCHEDULE, "num_warmup_steps": 1}
    path = _recipe(STYLED, tmp_path, max_steps_per_epoch=limit, lr_scheduler=schedule, **more)
    found = [one for one in truetune.check(path).findings if one.rule == "setting-overruled"]
    assert [one.severity for one in found] == severities
