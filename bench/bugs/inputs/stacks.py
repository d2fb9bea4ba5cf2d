"""Settings of Axolotl and LLaMA-Factory for a tiny model and a few chats, all in one folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.auditing import tiny

AXOLOTL: dict[str, Any] = {
    "base_model": "model", "output_dir": "out", "micro_batch_size": 2, "gradient_accumulation_steps": 1, "max_steps": 2,
    "learning_rate": 1e-4, "optimizer": "adamw_torch", "bf16": False, "dataset_num_proc": 1, "save_strategy": "no",
    "sequence_len": 256, "val_set_size": 0, "dataset_prepared_path": "prepared",
    "chat_template": "tokenizer_default",
}  # fmt: skip
LLAMA_FACTORY: dict[str, Any] = {
    "model_name_or_path": "model", "output_dir": "out", "stage": "sft", "do_train": True, "finetuning_type": "full",
    "dataset": "mine", "dataset_dir": ".", "template": "chatml", "per_device_train_batch_size": 2, "max_steps": 2,
    "use_cpu": True, "report_to": "none", "save_strategy": "no", "cutoff_len": 256, "overwrite_cache": True,
}  # fmt: skip
TAGS = {
    "role_tag": "role",
    "content_tag": "content",
    "user_tag": "user",
    "assistant_tag": "assistant",
}


def axolotl(folder: Path, **columns: Any) -> None:
    """config.yaml, model and chats.jsonl; `columns` are settings of the data set."""
    dataset = {"path": "chats.jsonl", "type": "chat_template", **columns}
    _lay(folder, {**AXOLOTL, "datasets": [dataset]})


def llama_factory(folder: Path, **settings: Any) -> None:
    """config.yaml, model, chats.jsonl and dataset_info.json."""
    mine = {
        "file_name": "chats.jsonl",
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": TAGS,
    }
    (folder / "dataset_info.json").write_text(json.dumps({"mine": mine}), encoding="utf-8")
    _lay(folder, {**LLAMA_FACTORY, **settings})


def _lay(folder: Path, settings: dict[str, Any]) -> None:
    tiny.model().save_pretrained(folder / "model")
    tiny.tokenizer().save_pretrained(folder / "model")
    (folder / "chats.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in tiny.chats(16, 2)), encoding="utf-8"
    )
    (folder / "config.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
