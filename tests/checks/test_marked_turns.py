"""Answers that are marked as not to be trained, for trainers that read the mark and that do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import truetune
from tests.checks.config.settings import AXOLOTL, LLAMA_FACTORY

ROWS = [
    {
        "messages": [
            {"role": "user", "content": f"What is {n} and one?"},
            {"role": "assistant", "content": "No idea.", "train": False},
            {"role": "user", "content": "Please try."},
            {"role": "assistant", "content": f"It is {n + 1}.", "train": True},
        ]
    }
    for n in range(20)
]


def found(folder: Path, settings: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    """What the rule says of rows beside settings."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "rows.jsonl").write_text(lines, encoding="utf-8")
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return [one.message for one in truetune.check(path).findings if one.code == "ROW072"]


def of_axolotl(**more: str) -> dict[str, Any]:
    """Settings of Axolotl with more keys in the table of their data set."""
    table = {"path": "rows.jsonl", "ds_type": "json", "type": "chat_template", **more}
    return {**AXOLOTL, "datasets": [table]}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [(of_axolotl(), 1), (of_axolotl(message_field_training="train"), 0)],
)
def test_axolotl_reads_the_mark_that_is_named(
    tmp_path: Path, settings: dict[str, Any], expected: int
) -> None:
    told = found(tmp_path, settings, ROWS)
    assert len(told) == expected
    assert all("20 of 40 answers" in one for one in told)


def test_rows_without_a_mark(tmp_path: Path) -> None:
    rows = [{"messages": row["messages"][2:]} for row in ROWS]
    assert found(tmp_path, of_axolotl(), rows) == []


@pytest.mark.parametrize(("more", "expected"), [({}, 1), ({"mask_history": True}, 0)])
def test_llama_factory_reads_none(tmp_path: Path, more: dict[str, Any], expected: int) -> None:
    tags = {
        "role_tag": "role",
        "content_tag": "content",
        "user_tag": "user",
        "assistant_tag": "assistant",
    }
    about = {
        "file_name": "rows.jsonl",
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": tags,
    }
    (tmp_path / "dataset_info.json").write_text(json.dumps({"own": about}), encoding="utf-8")
    settings = {**LLAMA_FACTORY, "dataset": "own", "dataset_dir": str(tmp_path), **more}
    assert len(found(tmp_path, settings, ROWS)) == expected
