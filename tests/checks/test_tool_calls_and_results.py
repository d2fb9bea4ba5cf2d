"""Tool calls beside the definitions of their tools, and beside their results."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import truetune
from tests.parts import data

Row = dict[str, Any]
SCHEMA = {
    "type": "object",
    "properties": {
        "guests": {"type": "integer"},
        "share": {"type": ["number", "null"]},
        "place": {"type": "string", "enum": ["inside", "outside"]},
        "vip": {"type": "boolean"},
    },
    "required": ["guests", "place"],
}
TOOLS = [{"type": "function", "function": {"name": "book", "parameters": SCHEMA}}]
GOOD = {"guests": 4, "place": "inside", "share": 0.5, "vip": True}


def _call(arguments: Any, name: str = "book", id: str = "a1") -> Row:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _chat(*calls: Row, tools: Any = TOOLS, results: tuple[str, ...] = ("a1",)) -> Row:
    return {
        "tools": tools,
        "messages": [
            {"role": "user", "content": "A table, please."},
            {"role": "assistant", "content": "", "tool_calls": list(calls)},
            *({"role": "tool", "tool_call_id": id, "content": f"of {id}"} for id in results),
            {"role": "assistant", "content": "It is booked."},
        ],
    }


def _codes(folder: Path, rows: list[Row], **given: Any) -> dict[str, Any]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {one.code: one for one in truetune.check(path, **given).findings}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"guests": "4"}, "another type"),
        ({"guests": True}, "another type"),
        ({"guests": 4.5}, "another type"),
        ({"place": "roof"}, "not in the enum"),
        ({"city": "Oslo"}, "not defined"),
        ({"place": None}, "missing"),
    ],
)
def test_arguments_that_the_definition_does_not_allow(
    change: Row, told: str, tmp_path: Path
) -> None:
    found = _codes(tmp_path, [_chat(_call({**GOOD, **change}))] * 3)["ROW078"]
    assert told in found.message
    assert (found.count, found.severity) == (3, "error")


@pytest.mark.parametrize(
    "arguments",
    [GOOD, json.dumps(GOOD), {**GOOD, "share": None}, {**GOOD, "guests": 4.0}],
)
def test_allowed_arguments_are_no_finding(arguments: Any, tmp_path: Path) -> None:
    assert "ROW078" not in _codes(tmp_path, [_chat(_call(arguments))] * 3)


def test_a_function_that_no_tool_defines(tmp_path: Path) -> None:
    rows = [_chat(_call(GOOD))] * 8 + [_chat(_call(GOOD, "reserve"))] * 2
    found = _codes(tmp_path, rows)["ROW078"]
    assert "a function that is not defined (2)" in found.message


def test_one_slip_of_many_is_no_finding(tmp_path: Path) -> None:
    rows = [_chat(_call(GOOD))] * 99 + [_chat(_call(GOOD, "reserve"))]
    assert "ROW078" not in _codes(tmp_path, rows)


@pytest.mark.parametrize("tools", [None, [], "[]", " [ ] ", "{}", "null", [{}], '["[]"]', ""])
def test_tools_are_empty_where_calls_are_made(tools: Any, tmp_path: Path) -> None:
    found = _codes(tmp_path, [_chat(_call(GOOD), tools=tools)] * 3)["ROW078"]
    assert "tools are empty" in found.message


@pytest.mark.parametrize("tools", ["book(guests, place): books a table", json.dumps(TOOLS)])
def test_tools_in_a_text_are_no_empty_ones(tools: str, tmp_path: Path) -> None:
    assert "ROW078" not in _codes(tmp_path, [_chat(_call(GOOD), tools=tools)] * 3)


def test_rows_without_a_column_of_tools_are_not_judged(tmp_path: Path) -> None:
    row = _chat(_call(GOOD))
    del row["tools"]
    assert "ROW078" not in _codes(tmp_path, [row] * 3)


@pytest.mark.parametrize("kind", ["str", "int, optional", "List[int]", None])
def test_types_that_are_none_of_json_schema_are_left_alone(kind: Any, tmp_path: Path) -> None:
    tools: Any = deepcopy(TOOLS)
    tools[0]["function"]["parameters"]["properties"]["guests"]["type"] = kind
    assert "ROW078" not in _codes(
        tmp_path, [_chat(_call({**GOOD, "guests": "4"}), tools=tools)] * 3
    )


def test_an_answer_without_the_result(tmp_path: Path) -> None:
    found = _codes(tmp_path, [_chat(_call(GOOD), results=())] * 3)["ROW073"]
    assert "without its result" in found.message


def test_a_call_that_ends_the_chat_needs_no_result(tmp_path: Path) -> None:
    row = _chat(_call(GOOD), results=())
    del row["messages"][-1]
    assert "ROW073" not in _codes(tmp_path, [row] * 3)


def test_calls_in_several_turns_before_their_results(tmp_path: Path) -> None:
    row = _chat(_call(GOOD), results=("a1", "b2"))
    row["messages"].insert(
        2, {"role": "assistant", "content": "", "tool_calls": [_call(GOOD, id="b2")]}
    )
    del row["messages"][3]
    assert "ROW073" not in _codes(tmp_path, [row] * 3)


def test_results_in_another_order_than_their_calls(tmp_path: Path) -> None:
    calls = (_call(GOOD), _call(GOOD, id="b2"))
    found = _codes(tmp_path, [_chat(*calls, results=("b2", "a1"))] * 3)["ROW073"]
    assert "another order" in found.message
    assert "ROW073" not in _codes(tmp_path, [_chat(*calls, results=("a1", "b2"))] * 3)


def test_a_result_of_no_call(tmp_path: Path) -> None:
    found = _codes(tmp_path, [_chat(_call(GOOD), results=("zz",))] * 3)["ROW073"]
    assert "an id that no call has" in found.message


def test_results_without_ids_are_not_compared(tmp_path: Path) -> None:
    calls = (_call(GOOD, id=""), _call(GOOD, id=""))
    assert "ROW073" not in _codes(tmp_path, [_chat(*calls, results=("", ""))] * 3)


@pytest.mark.parametrize(
    "name",
    [
        "glaive_toolcall_en_demo.json",
        "glaive_toolcall_zh_demo.json",
        "reason_tool_use_demo_50.jsonl",
    ],
)
def test_published_rows_with_tools_have_slips_at_most(name: str) -> None:
    found = truetune.check(data(f"llamafactory/{name}")).findings
    assert {one.severity for one in found if one.code in ("ROW078", "ROW073")} <= {"info"}


@pytest.mark.parametrize(("results", "finds"), [(("a1", "b2"), False), (("b2", "a1"), True)])
def test_calls_at_once_in_messages_of_their_own(
    results: tuple[str, ...], finds: bool, tmp_path: Path
) -> None:
    row = _chat(_call(GOOD), results=results)
    row["messages"].insert(
        2, {"role": "assistant", "content": "", "tool_calls": [_call(GOOD, id="b2")]}
    )
    assert ("ROW073" in _codes(tmp_path, [row] * 3)) == finds


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["integer", "null"]},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"type": "integer", "nullable": True},
    ],
)
def test_null_is_a_value_where_the_definition_takes_it(
    schema: dict[str, Any], tmp_path: Path
) -> None:
    tools: Any = deepcopy(TOOLS)
    tools[0]["function"]["parameters"]["properties"]["guests"] = schema
    rows = [_chat(_call({**GOOD, "guests": None}), tools=tools)] * 3
    assert "ROW078" not in _codes(tmp_path, rows)
    assert (
        "is missing"
        in _codes(tmp_path, [_chat(_call({**GOOD, "guests": None}))] * 3)["ROW078"].message
    )


def test_tools_that_the_system_prompt_defines_in_words(tmp_path: Path) -> None:
    row = _chat(_call(GOOD), tools=None)
    row["messages"].insert(0, {"role": "system", "content": "You may call book(guests, day)."})
    assert "ROW078" not in _codes(tmp_path, [row] * 3)
