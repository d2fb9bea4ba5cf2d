"""Data sets in the Hugging Face cache are found by their name, without the network."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as arrow
import pytest
from pyarrow import parquet

import truetune
from truetune.data.find_data_files import find_data_files_of_paths
from truetune.demo import TOKENIZER
from truetune.errors import DataError, UsageError

ROWS = [
    {"messages": [{"role": "user", "content": "Open?"}, {"role": "assistant", "content": "Yes."}]}
]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_DATASETS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hf"


def put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(arrow.Table.from_pylist(ROWS), path)
    elif path.suffix == ".arrow":
        table = arrow.Table.from_pylist(ROWS)
        with arrow.ipc.new_stream(str(path), table.schema) as writer:
            writer.write_table(table)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))


def snapshot(hub: Path, name: str, *files: str, revision: str = "abcdef12") -> Path:
    repository = hub / "hub" / f"datasets--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / "main").write_text(revision)
    for file in files:
        put(repository / "snapshots" / revision / file)
    return repository / "snapshots" / revision


def names(name: str) -> list[str]:
    return [source.path.name for source in find_data_files_of_paths([name])]


SINGLE = {
    "parquet parts": (
        "data/train-00000-of-00002.parquet",
        "data/train-00001-of-00002.parquet",
        "data/test-00000-of-00001.parquet",
    ),
    "plain names": ("train.jsonl", "test.jsonl"),
    "one file": ("alpaca_data.jsonl",),
    "folders": ("train/a.parquet", "validation/b.parquet"),
    "one train split of another name": (
        "data/train_sft-00000-of-00001.parquet",
        "data/test_sft-00000-of-00001.parquet",
    ),
    "words in names": ("chats-train-v2.jsonl", "chats-eval-v2.jsonl"),
}


@pytest.mark.parametrize("case", SINGLE)
def test_the_train_split_is_taken(case: str, hub: Path) -> None:
    snapshot(hub, "some-owner/a.set", *SINGLE[case])
    wanted = [
        Path(file).name
        for file in SINGLE[case]
        if not any(word in file for word in ("test", "eval", "valid"))
    ]
    assert names("some-owner/a.set") == wanted


def test_several_splits_are_named(hub: Path) -> None:
    files = [
        f"data/{split}-00000-of-00001.parquet" for split in ("train_sft", "train_gen", "test_sft")
    ]
    snapshot(hub, "HuggingFaceH4/ultrachat_200k", *files)
    with pytest.raises(
        DataError, match="its splits are test_sft, train_gen, train_sft; name one, as in"
    ):
        names("HuggingFaceH4/ultrachat_200k")
    report = truetune.check("HuggingFaceH4/ultrachat_200k:train_sft", tokenizer=str(TOKENIZER))
    assert isinstance(report, truetune.DataReport)
    assert report.rows == 1
    with pytest.raises(DataError, match="dev: its splits are"):
        names("HuggingFaceH4/ultrachat_200k:dev")


def test_configurations(hub: Path) -> None:
    snapshot(
        hub,
        "openai/gsm8k",
        "main/train-00000-of-00001.parquet",
        "socratic/train-00000-of-00001.parquet",
    )
    with pytest.raises(DataError, match="main/train, socratic/train"):
        names("openai/gsm8k")
    assert [
        source.path.parent.name
        for source in find_data_files_of_paths(["openai/gsm8k:socratic/train"])
    ] == ["socratic"]


def test_what_datasets_has_prepared(hub: Path) -> None:
    put(hub / "datasets" / "Owner___name" / "default" / "0.0.0" / "abc" / "name-train.arrow")
    put(hub / "datasets" / "Owner___name" / "default" / "0.0.0" / "abc" / "name-test.arrow")
    assert names("owner/name") == ["name-train.arrow"]


def test_what_is_not_cached_is_said(hub: Path) -> None:
    with pytest.raises(
        UsageError,
        match=r"no data set of this name in the Hugging Face cache.*hf download owner/none",
    ):
        truetune.check("owner/none", tokenizer=str(TOKENIZER))
    (hub / "hub" / "models--Qwen--Qwen3").mkdir(parents=True)
    with pytest.raises(
        UsageError, match="this is a model in the Hugging Face cache, not data; name it with -t"
    ):
        truetune.check("Qwen/Qwen3", tokenizer=str(TOKENIZER))


def test_paths_win_over_names(hub: Path, tmp_path: Path) -> None:
    snapshot(hub, "owner/name", "train.jsonl")
    put(tmp_path / "owner" / "other.jsonl")
    with pytest.raises(DataError, match="no such file or folder"):
        names("owner/name")
    assert names("owner/other.jsonl") == ["other.jsonl"]
