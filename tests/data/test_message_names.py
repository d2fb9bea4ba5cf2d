"""Keys and roles inside messages, by the names that a map gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.data.read_rows_as_conversations import read_conversations
from truetune.errors import SpecError

MAP = {
    "messages": "talk",
    "message.role": "who",
    "message.content": "says",
    "role.user": "client,caller",
    "role.assistant": "agent",
}


def _turns(
    folder: Path, columns: dict[str, str], messages: list[dict[str, str]]
) -> list[tuple[str, str]]:
    file = folder / "rows.jsonl"
    file.write_text(json.dumps({"talk": messages}) + "\n")
    (row,) = read_conversations([str(file)], columns=columns)
    return [(message["role"], message["content"]) for message in row.messages]


def test_keys_and_roles_of_the_file_become_ours(tmp_path: Path) -> None:
    talk = [
        {"who": "client", "says": "Hello"},
        {"who": "agent", "says": "Hi"},
        {"who": "caller", "says": "Open?"},
    ]
    assert _turns(tmp_path, MAP, talk) == [
        ("user", "Hello"),
        ("assistant", "Hi"),
        ("user", "Open?"),
    ]


def test_exchanged_roles_are_translated_once(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    columns = {"messages": "talk", "role.user": "assistant", "role.assistant": "user"}
    assert _turns(tmp_path, columns, talk) == [("assistant", "Hello"), ("user", "Hi")]


@pytest.mark.parametrize("name", ["message.text", "role.boss"])
def test_a_name_that_messages_do_not_have_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecError, match=r"expected one of message\.role"):
        _turns(tmp_path, {"messages": "talk", name: "x"}, [{"role": "user", "content": "Hello"}])
