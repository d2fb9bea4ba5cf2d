"""`truetune run` with Axolotl's and LLaMA-Factory's own commands, each in an environment without truetune.

Their Pythons stand in $TRUETUNE_AXOLOTL and $TRUETUNE_LLAMAFACTORY, as for test_others.py; skipped where they are not.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.auditing import tiny
from tests.auditing.running import run
from tests.trainers.test_others import needs

AXOLOTL = """
base_model: model
output_dir: out
micro_batch_size: 2
gradient_accumulation_steps: 1
max_steps: 2
learning_rate: 0.0001
optimizer: adamw_torch
bf16: false
dataset_num_proc: 1
save_strategy: "no"
sequence_len: 256
val_set_size: 0
dataset_prepared_path: prepared
chat_template: tokenizer_default
datasets:
  - path: chats.jsonl
    type: chat_template
    roles_to_train: [assistant]
"""
LLAMAFACTORY = """
model_name_or_path: model
output_dir: out
stage: sft
do_train: true
finetuning_type: full
dataset: mine
dataset_dir: .
template: chatml
per_device_train_batch_size: 2
max_steps: 2
use_cpu: true
report_to: none
save_strategy: "no"
cutoff_len: 256
"""
OPENAI = {
    "role_tag": "role",
    "content_tag": "content",
    "user_tag": "user",
    "assistant_tag": "assistant",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a model and chats."""
    tiny.model().save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    rows = tiny.chats(16, 2)
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    mine = {
        "file_name": "chats.jsonl",
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": OPENAI,
    }
    (tmp_path / "dataset_info.json").write_text(json.dumps({"mine": mine}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def audited(command: str, python: str, *arguments: str) -> tuple[dict[str, Any], str]:
    """The report on `command`, and its own output; `command` stands beside its Python."""
    found = Path(os.environ[python]).parent
    done = run(
        str(found / command),
        *arguments,
        python="",
        PATH=f"{found}{os.pathsep}{os.environ['PATH']}",
        options=["--on-error", "warn", "--format", "json", "-o", "report.json", "--laws", "none"],
        AXOLOTL_DO_NOT_TRACK="1",
        CUDA_VISIBLE_DEVICES="",
    )
    assert done.returncode == 0, done.stderr
    return json.loads(Path("report.json").read_text()), done.stdout + done.stderr


@needs("axolotl")
def test_axolotl(here: Path) -> None:
    Path("config.yaml").write_text(AXOLOTL)
    report, said = audited("axolotl", "TRUETUNE_AXOLOTL", "train", "config.yaml")
    assert report["subjects"][0]["path"] == "axolotl.core.trainers.base.AxolotlTrainer"
    assert not [finding for finding in report["findings"] if finding["severity"] == "error"]
    assert "train_loss" in said


@needs("llamafactory")
def test_llamafactory(here: Path) -> None:
    Path("config.yaml").write_text(LLAMAFACTORY)
    report, said = audited("llamafactory-cli", "TRUETUNE_LLAMAFACTORY", "train", "config.yaml")
    assert report["subjects"][0]["path"] == "llamafactory.train.sft.trainer.CustomSeq2SeqTrainer"
    assert not [finding for finding in report["findings"] if finding["severity"] == "error"]
    assert "train_loss" in said
