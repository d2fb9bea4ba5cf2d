"""Healthy rows, and how they are written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from truetune.demo import DATA

Row = dict[str, Any]


def chats(count: int, *, skip: int = 0, system: bool = True) -> list[Row]:
    """Chats of one to three turns without tools, as `messages`; at most 150 of them, or without system turns."""
    rows = [
        row
        for row in map(json.loads, DATA.read_text(encoding="utf-8").splitlines())
        if "tools" not in row
    ]
    if not system:
        rows = [row for row in rows if row["messages"][0]["role"] != "system"]
    return rows[skip : skip + count]


def tool_chats(count: int) -> list[Row]:
    """Chats in which a tool is called."""
    rows = map(json.loads, DATA.read_text(encoding="utf-8").splitlines())
    return [row for row in rows if "tools" in row][:count]


def questions(count: int, *, skip: int = 0) -> list[tuple[str, str]]:
    """(question, answer) of the first turns of chats."""
    turns = (
        [message["content"] for message in row["messages"] if message["role"] != "system"]
        for row in chats(count, skip=skip)
    )
    return [(question, answer) for question, answer, *_ in turns]


def pairs(count: int) -> list[Row]:
    """Preference rows; in half of them the longer answer is chosen.

    The rejected answer is that of another chat about something else.
    """
    asked = questions(count)
    others = [answer for _, answer in asked]
    return [
        {
            "prompt": say("user", question),
            "chosen": say("assistant", answer),
            "rejected": say("assistant", other),
        }
        for (question, answer), other in zip(asked, others[7:] + others[:7], strict=True)
    ]


def say(role: str, content: str) -> list[dict[str, str]]:
    """One message, as a conversation."""
    return [{"role": role, "content": content}]


def write(path: Path, rows: Iterable[Row]) -> None:
    """JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
