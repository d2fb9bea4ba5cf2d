"""Own rows beside a published set that is a thousand times larger, and mixtures that are sound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checks.config.settings import AXOLOTL
from truetune.checks.config.own_rows_are_rare import OwnRowsAreRare
from truetune.settings.stacks.read_config_of_any_stack import read_config

OWN = {"path": "own.jsonl", "type": "chat_template"}
LARGE = {"path": "teknium/OpenHermes-2.5", "type": "chat_template"}
ULTRA = {"path": "HuggingFaceH4/ultrachat_200k", "type": "chat_template", "split": "train_sft"}


def messages(folder: Path, sets: list[dict[str, Any]], rows: int = 250) -> list[str]:
    """What the rule says of a list of data sets, with a file of own rows."""
    row = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    (folder / "own.jsonl").write_text((json.dumps(row) + "\n") * rows, encoding="utf-8")
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({**AXOLOTL, "datasets": sets}), encoding="utf-8")
    return [found.message for found in OwnRowsAreRare(read_config(path)).findings()]


@pytest.mark.parametrize(
    ("sets", "rows"),
    [
        ([LARGE, OWN], 250),
        ([OWN, LARGE], 900),
        ([OWN, ULTRA], 60),
        ([OWN, LARGE, ULTRA], 1000),
        ([OWN, {**LARGE, "path": "Open-Orca/SlimOrca"}], 300),
        ([OWN, {**LARGE, "split": "train"}], 20),
    ],
)
def test_own_rows_that_are_lost(sets: list[dict[str, Any]], rows: int, tmp_path: Path) -> None:
    (message,) = messages(tmp_path, sets, rows)
    assert f"own.jsonl: {rows:,};" in message


@pytest.mark.parametrize(
    ("sets", "rows"),
    [
        ([OWN], 250),
        ([LARGE], 250),
        ([LARGE, OWN], 2000),
        ([ULTRA, OWN], 250),
        ([OWN, OWN, LARGE], 250),
        ([OWN, {**LARGE, "split": "train[:2000]"}], 250),
        ([OWN, {**LARGE, "shards": 1000}], 250),
        ([OWN, {**LARGE, "path": "our-company/chats"}], 250),
        ([{**OWN, "path": "missing.jsonl"}, LARGE], 250),
        ([OWN, LARGE, {**LARGE, "path": "our-company/more"}], 250),
    ],
)
def test_mixtures_that_are_left_alone(
    sets: list[dict[str, Any]], rows: int, tmp_path: Path
) -> None:
    assert messages(tmp_path, sets, rows) == []
