"""Roles of the rows beside the tags of LLaMA-Factory's dataset_info.json."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checks.config.settings import LLAMA_FACTORY
from tests.parts import data
from truetune.checks.config.role_tags_differ_from_rows import RoleTagsDifferFromRows
from truetune.checks.findings import Finding
from truetune.settings.stacks.read_config_of_any_stack import read_config

TAGS = {"role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "gpt"}
OPENAI_TAGS = {
    "role_tag": "role",
    "content_tag": "content",
    "user_tag": "user",
    "assistant_tag": "assistant",
    "system_tag": "system",
}


def _chat(*roles: str, role: str = "from", content: str = "value") -> dict[str, Any]:
    """A row with turns of these roles."""
    return {"conversations": [{role: name, content: f"turn {n}"} for n, name in enumerate(roles)]}


def _findings(
    folder: Path, rows: list[dict[str, Any]], form: str = "sharegpt", **entry: Any
) -> list[Finding]:
    """What the rule says of a training on rows with this entry."""
    about = {
        "file_name": "rows.jsonl",
        "formatting": form,
        "columns": {"messages": "conversations"},
        **entry,
    }
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "rows.jsonl").write_text(lines, encoding="utf-8")
    return _of_info(folder, {"desk": about}, "desk")


def _of_info(folder: Path, info: dict[str, Any], names: str) -> list[Finding]:
    """What the rule says of a training on these entries."""
    (folder / "dataset_info.json").write_text(json.dumps(info), encoding="utf-8")
    path = folder / "run.yaml"
    settings = {**LLAMA_FACTORY, "dataset": names, "dataset_dir": str(folder)}
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    rule = RoleTagsDifferFromRows(read_config(path))
    return [] if rule.unmet() is not None else list(rule.findings())


GOOD = [_chat("human", "gpt")] * 3


@pytest.mark.parametrize(
    ("rows", "entry", "roles", "remedy"),
    [
        ([*GOOD, _chat("user", "assistant")], {}, "user (1), assistant (1)", "rename user"),
        (
            [*GOOD, _chat("human", "function_call", "tool", "gpt")],
            {},
            "tool (1)",
            '"observation_tag": "tool"',
        ),
        ([*GOOD, _chat("system", "human", "gpt")], {"tags": TAGS}, "system (1)", '"system_tag"'),
        (
            [_chat("human", "gpt")],
            {"tags": {**TAGS, "user_tag": "user", "assistant_tag": "assistant"}},
            "human (1), gpt (1)",
            '"user_tag": "human", "assistant_tag": "gpt"',
        ),
    ],
)
def test_roles_that_no_tag_names(
    rows: list[dict[str, Any]], entry: dict[str, Any], roles: str, remedy: str, tmp_path: Path
) -> None:
    (found,) = _findings(tmp_path, rows, **entry)
    assert found.severity == "error"
    assert f"LLaMA-Factory drops 1 of {len(rows)} chats of desk" in found.message
    assert found.message.endswith(roles)
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("rows", "entry"),
    [
        (GOOD, {}),
        ([_chat("system", "human", "gpt")], {}),
        ([_chat("human", "function_call", "observation", "gpt")], {}),
        (GOOD, {"tags": TAGS}),
        ([_chat("system", "human", "gpt")], {"tags": {**TAGS, "system_tag": "system"}}),
        ([_chat("user", "bot")], {"tags": {**TAGS, "user_tag": "user", "assistant_tag": "bot"}}),
        # The run stops where a message lacks the key of its role.
        ([_chat("user", "assistant", role="role", content="content")], {}),
    ],
)
def test_roles_that_the_tags_name(
    rows: list[dict[str, Any]], entry: dict[str, Any], tmp_path: Path
) -> None:
    assert not _findings(tmp_path, rows, **entry)


def test_the_form_of_openai_stops(tmp_path: Path) -> None:
    keys = {"role": "role", "content": "content"}
    rows = [_chat("user", "assistant", **keys), _chat("user", "assistant", "tool", **keys)]
    (found,) = _findings(tmp_path, rows, "openai", tags=OPENAI_TAGS)
    assert found.message.startswith("LLaMA-Factory stops at 1 of 2 chats of desk")


@pytest.mark.parametrize(
    "name", ["glaive_toolcall_en_demo.json", "glaive_toolcall_zh_demo.json", "dpo_en_demo.json"]
)
def test_published_rows_fit_their_entries(name: str, tmp_path: Path) -> None:
    shutil.copy(data(f"llamafactory/{name}"), tmp_path / name)
    entry: dict[str, Any] = {
        "file_name": name,
        "formatting": "sharegpt",
        "columns": {"messages": "conversations"},
    }
    assert not _of_info(tmp_path, {"demo": entry}, "demo")
    # They have turns of tools, or of the system, which these tags leave out.
    assert _of_info(tmp_path, {"demo": {**entry, "tags": TAGS}}, "demo")
