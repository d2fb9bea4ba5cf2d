"""Rows that pass the limit by their characters alone, where no tokenizer is at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import truetune
from truetune.checks.config.rows_surely_cut import RowsSurelyCut
from truetune.settings.stacks.read_config_of_any_stack import read_config

SENTENCE = (
    "The caretaker of the house should look at the boiler in the cellar before the week ends. "
)
AXOLOTL = {
    "base_model": "some/model",
    "datasets": [{"path": "rows.jsonl", "type": "chat_template"}],
    "sequence_len": 256,
    "micro_batch_size": 2,
    "learning_rate": 0.0002,
}
TORCHTUNE = {
    "model": {
        "_component_": "torchtune.models.qwen2_5.lora_qwen2_5_3b",
        "lora_attn_modules": ["q_proj"],
    },
    "tokenizer": {"_component_": "torchtune.models.qwen2_5.qwen2_5_tokenizer", "max_seq_len": 256},
    "dataset": {
        "_component_": "torchtune.datasets.chat_dataset",
        "source": "json",
        "data_files": "rows.jsonl",
    },
    "batch_size": 1,
    "epochs": 1,
}


def chat(*turns: str) -> dict[str, object]:
    """A row of turns."""
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[n % 2], "content": text} for n, text in enumerate(turns)]}


def found(folder: Path, settings: dict[str, object], rows: list[dict[str, object]]) -> list[str]:
    """The findings of the rule on settings and the rows that they name."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "rows.jsonl").write_text(lines, encoding="utf-8")
    path = folder / "run.yaml"
    text = yaml.safe_dump(settings, sort_keys=False)
    path.write_text(text.replace("rows.jsonl", str(folder / "rows.jsonl")), encoding="utf-8")
    report = truetune.check([str(path)], select=["rows-surely-cut"])
    return [finding.message for finding in report.findings]


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        (AXOLOTL, [chat("Why?", SENTENCE * 30)] * 8),
        (AXOLOTL, [chat(*[SENTENCE * 5] * 6)] * 8),
        (AXOLOTL, [chat("Why?", "So.")] * 9 + [chat("Why?", SENTENCE * 30)]),
        (TORCHTUNE, [chat("Why?", SENTENCE * 30)] * 8),
    ],
)
def test_rows_that_are_too_long(
    settings: dict[str, object], rows: list[dict[str, object]], tmp_path: Path
) -> None:
    assert len(found(tmp_path, settings, rows)) == 1


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        (AXOLOTL, [chat("Why?", SENTENCE * 12)] * 8),
        (AXOLOTL, [chat("Why?", "-" * 9000)] * 8),
        (AXOLOTL, [chat("Why?", "So.")] * 99 + [chat("Why?", SENTENCE * 30)]),
        (AXOLOTL | {"sequence_len": 2048}, [chat("Why?", SENTENCE * 30)] * 8),
        (AXOLOTL, [{**chat("Why?", "So."), "source": SENTENCE * 30}] * 8),
        (TORCHTUNE, [chat("Why?", "So.")] * 8),
    ],
)
def test_rows_that_may_fit(
    settings: dict[str, object], rows: list[dict[str, object]], tmp_path: Path
) -> None:
    assert found(tmp_path, settings, rows) == []


def evidence(folder: Path, tokenizer: Path) -> str:
    """What is said of how a cut is known, where LLaMA-Factory's settings name this folder as the model."""
    lines = "".join(json.dumps(chat("Why?", SENTENCE * 40)) + "\n" for _ in range(30))
    (folder / "rows.jsonl").write_text(lines, encoding="utf-8")
    tags = {"role_tag": "role", "content_tag": "content", "user_tag": "user"}
    entry = {
        "file_name": "rows.jsonl",
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": {**tags, "assistant_tag": "assistant"},
    }
    (folder / "dataset_info.json").write_text(json.dumps({"rows": entry}))
    settings = {
        "model_name_or_path": str(tokenizer),
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "lora",
        "dataset": "rows",
        "dataset_dir": str(folder),
        "cutoff_len": 64,
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    (finding,) = RowsSurelyCut(read_config(path, "llama-factory")).findings()
    return "\n".join(finding.evidence)


def test_a_tokenizer_that_is_here_is_not_called_absent(tmp_path: Path) -> None:
    here = tmp_path / "tokenizer"
    here.mkdir()
    (here / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert "is not on this machine" not in evidence(tmp_path, here)
    assert "is not on this machine" in evidence(tmp_path, tmp_path / "absent")
    assert "the stop token" in evidence(tmp_path, here)


FACTORY = {
    "model_name_or_path": "some/model",
    "stage": "sft",
    "do_train": True,
    "finetuning_type": "lora",
    "dataset": "rows",
    "template": "llama3",
    "cutoff_len": 256,
    "output_dir": "out",
}


@pytest.mark.parametrize(
    ("rows", "fate"),
    [
        # infer_seqlen: 2 x 12 sentences of 89 characters are more than 6 x 256.
        ([chat(SENTENCE * 30, SENTENCE * 12)] * 8, "certainly lose the end of their answer"),
        # The short answer is kept whole, however long its prompt is.
        ([chat(SENTENCE * 30, "So.")] * 8, "are certainly cut"),
        # Each turn has a limit of its own.
        ([chat(*[SENTENCE * 12] * 4)] * 8, "are certainly cut"),
    ],
)
def test_llama_factory_shares_the_limit_out(
    rows: list[dict[str, object]], fate: str, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    tags = {"role_tag": "role", "content_tag": "content", "user_tag": "user"}
    tags |= {"assistant_tag": "assistant"}
    entry = {
        "file_name": "rows.json",
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": tags,
    }
    info = json.dumps({"rows": entry})
    (tmp_path / "data" / "dataset_info.json").write_text(info, encoding="utf-8")
    (tmp_path / "run.yaml").write_text(
        yaml.safe_dump({**FACTORY, "dataset_dir": str(tmp_path / "data")}), encoding="utf-8"
    )
    (finding,) = truetune.check([str(tmp_path / "run.yaml")], select=["rows-surely-cut"]).findings
    assert f"8 of 8 rows {fate}" in finding.message
    assert "whole answer" not in finding.message
