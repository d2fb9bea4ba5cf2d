"""Chats whose turns do not alternate, as LLaMA-Factory reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import truetune

RUN = {
    "model_name_or_path": "some/model",
    "stage": "sft",
    "do_train": True,
    "finetuning_type": "lora",
    "dataset": "desk",
    "template": "qwen",
    "cutoff_len": 512,
}
NAMES = {"u": "human", "a": "gpt", "s": "system", "c": "function_call", "o": "observation"}
OPENAI = {"u": "user", "a": "assistant", "s": "system", "c": "assistant", "o": "tool"}
OWN = {"u": "caller", "a": "agent", "s": "system", "c": "function_call", "o": "observation"}
OPENAI_TAGS = {
    "role_tag": "role",
    "content_tag": "content",
    "user_tag": "user",
    "assistant_tag": "assistant",
    "observation_tag": "tool",
}
OWN_TAGS = {
    "role_tag": "who",
    "content_tag": "says",
    "user_tag": "caller",
    "assistant_tag": "agent",
}


def _rows(orders: list[str], names: dict[str, str], keys: tuple[str, str]) -> list[dict[str, Any]]:
    role, text = keys
    return [
        {
            "conversations": [
                {role: names[one], text: f"Text {n} {one}."} for n, one in enumerate(order)
            ]
        }
        for order in orders
    ]


def _found(
    folder: Path, rows: list[dict[str, Any]], tags: dict[str, str] | None, run: dict[str, Any]
) -> list[Any]:
    about: dict[str, Any] = {
        "file_name": "desk.json",
        "formatting": "sharegpt",
        "columns": {"messages": "conversations"},
    }
    if tags:
        about["tags"] = tags
    (folder / "desk.json").write_text(json.dumps(rows), encoding="utf-8")
    (folder / "dataset_info.json").write_text(json.dumps({"desk": about}), encoding="utf-8")
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump({**run, "dataset_dir": str(folder)}), encoding="utf-8")
    return [one for one in truetune.check(path).findings if one.code == "ROW068"]


FAULTY = {
    "greeting": (["aua", "ua", "uaua"], NAMES, ("from", "value"), None),
    "greeting behind a system turn": (["saua", "ua"], NAMES, ("from", "value"), None),
    "two messages": (["uua", "ua"], NAMES, ("from", "value"), None),
    "two answers": (["uaaua", "ua"], OPENAI, ("role", "content"), OPENAI_TAGS),
    "two results": (["ucooa", "ua"], NAMES, ("from", "value"), None),
    "own names": (["aua", "ua"], OWN, ("who", "says"), OWN_TAGS),
}
HEALTHY = {
    "plain": (["ua", "uaua", "suaua"], NAMES, ("from", "value"), None),
    "tools": (["ucoa", "ucocoa"], NAMES, ("from", "value"), None),
    "own names": (["ua", "uaua"], OWN, ("who", "says"), OWN_TAGS),
}


@pytest.mark.parametrize("name", FAULTY)
def test_a_chat_out_of_order(name: str, tmp_path: Path) -> None:
    orders, names, keys, tags = FAULTY[name]
    (found,) = _found(tmp_path, _rows(orders, names, keys), tags, RUN)
    assert f"drops 1 of {len(orders)} chats" in found.message


@pytest.mark.parametrize("name", HEALTHY)
def test_turns_that_alternate(name: str, tmp_path: Path) -> None:
    orders, names, keys, tags = HEALTHY[name]
    assert not _found(tmp_path, _rows(orders, names, keys), tags, RUN)


def test_other_trainers_take_any_order(tmp_path: Path) -> None:
    rows = _rows(["aua", "uua"], NAMES, ("from", "value"))
    (tmp_path / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    axolotl = {
        "base_model": "some/model",
        "datasets": [{"path": "rows.json", "ds_type": "json", "type": "chat_template"}],
        "sequence_len": 512,
    }
    assert not _found(tmp_path, rows, None, axolotl)


def test_few_are_a_warning(tmp_path: Path) -> None:
    rows = _rows(["ua"] * 60 + ["aua"], NAMES, ("from", "value"))
    (found,) = _found(tmp_path, rows, None, RUN)
    assert found.severity == "warning"
