"""Tool calls that hold null for the parameters of other tools, as `datasets` writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import truetune

PARAMETERS = {"hours": ("day",), "route": ("start", "goal", "by"), "price": ("item", "count")}
VALUES = {"day": "Monday", "start": "A", "goal": "B", "by": "bus", "item": "tea", "count": 2}


def _definition(name: str) -> dict[str, Any]:
    properties = {key: {"type": "string"} for key in PARAMETERS[name]}
    schema = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def _row(number: int, *, text: bool = False, tools: bool = True, **more: Any) -> dict[str, Any]:
    name = list(PARAMETERS)[number % len(PARAMETERS)]
    arguments: Any = {**{key: VALUES[key] for key in PARAMETERS[name]}, **more}
    if text:
        arguments = json.dumps(arguments)
    row: dict[str, Any] = {
        "messages": [
            {"role": "user", "content": f"Question {number}?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"type": "function", "function": {"name": name, "arguments": arguments}}
                ],
            },
        ]
    }
    if tools:
        row["tools"] = [_definition(one) for one in PARAMETERS]
    return row


def _write(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _unified(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows as a table of Arrow writes them again, which gives each call the keys of all."""
    return _write(folder, pa.Table.from_pylist(rows).to_pylist())


def _messages(path: Path) -> list[str]:
    return [one.message for one in truetune.check(path).findings if one.code == "ROW069"]


@pytest.mark.parametrize("tools", [True, False])
def test_rows_that_datasets_wrote_again(tools: bool, tmp_path: Path) -> None:
    path = _unified(tmp_path, [_row(number, tools=tools) for number in range(12)])
    (message,) = _messages(path)
    assert message.startswith("12 of 12 rows")


def test_a_row_with_several_calls_counts_once(tmp_path: Path) -> None:
    rows = [_row(number, tools=False) for number in range(6)]
    for number, row in enumerate(rows):
        other = _row(number + 1, tools=False)["messages"][1]["tool_calls"]
        row["messages"][1]["tool_calls"] += other
    (message,) = _messages(_unified(tmp_path, rows))
    assert message.startswith("6 of 6 rows")


def test_definitions_that_datasets_wrote_again(tmp_path: Path) -> None:
    rows = [_row(number, text=True) for number in range(12)]
    (message,) = _messages(_unified(tmp_path, rows))
    assert "definitions of tools" in message


@pytest.mark.parametrize("text", [True, False])
def test_null_that_the_definition_does_not_know(text: bool, tmp_path: Path) -> None:
    rows = [_row(number, text=text) for number in range(8)]
    rows[3] = _row(3, text=text, goal=None, by=None)
    (message,) = _messages(_write(tmp_path, rows))
    assert message.startswith("1 of 8 rows")


def _trip(name: str, back: str | None) -> dict[str, Any]:
    """A call of one of two functions with the same parameters, without a definition."""
    row = _row(0, tools=False)
    arguments = {"start": "A", "goal": "B", "back": back}
    row["messages"][1]["tool_calls"] = [{"function": {"name": name, "arguments": arguments}}]
    return row


HEALTHY = {
    "a parameter that only one of two functions uses": [
        _trip("flights", "Monday"),
        _trip("trains", None),
        _trip("trains", None),
    ],
    "own parameters": [_row(number) for number in range(9)],
    "text": [_row(number, text=True) for number in range(9)],
    "optional": [_row(1, by=None), _row(4), _row(0)],
    "optional, no definitions": [
        _row(1, by=None, tools=False),
        _row(4, tools=False),
        _row(0, tools=False),
    ],
    "one function": [_row(1, tools=False, via=None, by=None), _row(4, tools=False, via=None)],
}


@pytest.mark.parametrize("name", HEALTHY)
def test_calls_of_their_own(name: str, tmp_path: Path) -> None:
    assert not _messages(_write(tmp_path, HEALTHY[name]))
