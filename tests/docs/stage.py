"""The prepared folder of the blocks: what docs/start.md makes, and what truetune makes of that."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tests.docs import running
from tests.docs.blocks import blocks
from truetune.demo import DATA

CHATS, HELD_OUT, FEW = 64, 20, 16
ROOT = Path(__file__).parents[2]
FILES = Path(__file__).with_name("files")
"""Copied as they are"""
SETTINGS: dict[str, Any] = {
    "model": "path/to/model", "tokenizer": "path/to/model", "data": "chats.jsonl", "max_length": 512,
    "rehearsal": False, "watch": {"prompts": 2, "max_new_tokens": 8}, "trainer": {"report_to": "none"},
    "training": {"output_dir": "outputs", "max_steps": 4, "save_steps": 4, "val_size": 4, "lora": {"r": 4}},
}  # fmt: skip
MADE = (
    "encode chats.jsonl -t path/to/model -o encoded",
    "encode chats.jsonl -t path/to/model -o packed --max-length 512 --packing best-fit",
    "encode chats.jsonl -t path/to/model -o weighted --loss-weights",
    "train truetune.yaml",
    "merge outputs -o merged",
)
"""Commands, in this order, which leave the folders that they name"""


def build(folder: Path) -> None:
    """Make the prepared folder. Raises RuntimeError where a command fails."""
    shutil.copytree(FILES, folder)
    material = next(
        block for block in blocks() if block.page == "docs/start.md" and block.language == "python"
    )
    _must(running.python(material.text, [], folder, material.id))
    model = folder / "path/to/model"
    for name in ("path/to/base", "model"):
        shutil.copytree(model, folder / name)
    _data(folder)
    (folder / "truetune.yaml").write_text(yaml.safe_dump(SETTINGS, sort_keys=False))
    for command in MADE:
        _must(running.truetune(command.split(), folder))
    _run(folder)


def _must(ran: running.Ran) -> None:
    if ran.code != 0:
        raise RuntimeError(ran.said)


def _data(folder: Path) -> None:
    chats = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    rows = [{"messages": chat["messages"]} for chat in chats]
    _lines(folder / "held-out.jsonl", rows[-HELD_OUT:])
    (folder / "data").mkdir()
    pq.write_table(pa.Table.from_pylist(rows[:CHATS]), folder / "data" / "train-0.parquet")
    asked = [(row["messages"][:-1], row["messages"][-1:]) for row in rows[:CHATS]]
    other = [{"role": "assistant", "content": "I can not help with this."}]
    _lines(
        folder / "pairs.jsonl", [{"prompt": p, "chosen": a, "rejected": other} for p, a in asked]
    )
    _lines(
        folder / "judged.jsonl",
        [
            {"prompt": p, "completion": a if i % 2 else other, "label": bool(i % 2)}
            for i, (p, a) in enumerate(asked)
        ],
    )


def _lines(path: Path, rows: Iterable[Any]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def _run(folder: Path) -> None:
    """A run of the plain Trainer: what it logs every 10 of 500 steps, and the model at the last."""
    outputs = folder / "outputs"
    shutil.copytree(
        outputs, outputs / "adapter", ignore=lambda at, names: [n for n in names if _no_adapter(n)]
    )
    last = outputs / "run-3" / "checkpoint-500"
    shutil.copytree(folder / "merged", last)
    log = [
        {
            "step": step,
            "epoch": step / 250,
            "loss": 0.4 + 2.6 * 0.985**step + 0.02 * (step // 10 % 3),
            "learning_rate": 2e-5 * (1 - step / 500),
            "grad_norm": 1.0 + 0.1 * (step // 10 % 4),
        }
        for step in range(10, 510, 10)
    ]
    state = {
        "global_step": 500,
        "max_steps": 500,
        "epoch": 2.0,
        "num_train_epochs": 2,
        "logging_steps": 10,
        "train_batch_size": 4,
        "log_history": log,
    }
    for place in (last, last.parent):
        (place / "trainer_state.json").write_text(json.dumps(state))
    _lines(folder / "trainer_log.jsonl", log)


def _no_adapter(name: str) -> bool:
    return not name.startswith(
        ("adapter", "tokenizer", "chat_template", "special_tokens", "contract", "base_")
    )
