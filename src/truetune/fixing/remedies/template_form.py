"""Rows in another form than the chat template takes: the form is changed, the content is not.

Which form a template takes is not read from its source: the smallest change with which it takes the row is found by
trying, one way alone first, then two together, and so on.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import combinations
from typing import Any

from truetune.data.columns import COLUMN_ALIASES
from truetune.fixing.remedy import Attempt, Context, Remedy, RowView, Stage
from truetune.fixing.row_edits import Edit, PutValue
from truetune.fixing.row_judge import JudgedRows
from truetune.fixing.row_turns import Turn, parse_json_value
from truetune.parsing.json_reader import parse_json
from truetune.parsing.limits import ROW

ID_LENGTH = 9
"""Mistral's templates take ids of nine letters and digits, and no others."""
ALPHANUMERIC = string.ascii_letters + string.digits
FormChange = Callable[[RowView], list[Edit]]


def write_missing_content(row: RowView) -> list[Edit]:
    """`content: null`, or none, on turns that call tools becomes an empty text."""
    return [
        PutValue((*turn.path, "content"), "")
        for turn in row.turns
        if turn.role_key == "role" and turn.message.get("content") is None
    ]


def join_text_parts(row: RowView) -> list[Edit]:
    """Contents that are parts of text become one text."""
    return [
        PutValue((*turn.path, key), "".join(part["text"] for part in parts))
        for turn in row.turns
        for key in ("content", "value")
        if isinstance(parts := turn.message.get(key), list) and is_text_parts(parts)
    ]


def arguments_as_text(row: RowView) -> list[Edit]:
    """Arguments that are objects become JSON text."""
    return [
        PutValue((*path, "arguments"), _one_line(row.spelled((*path, "arguments"))))
        for turn in row.turns
        for path, call in turn.calls
        if isinstance(call.get("arguments"), dict | list)
    ]


def arguments_as_objects(row: RowView) -> list[Edit]:
    """Arguments that are JSON text become objects."""
    return [edit for turn in row.turns for edit in argument_objects(turn)]


def shorten_ids(row: RowView) -> list[Edit]:
    """Ids of calls and of their results become nine letters and digits; results without one get that of their call."""
    edits: list[Edit] = []
    waiting: list[str] = []
    for turn in row.turns:
        for index, (path, call) in enumerate(turn.calls if "tool_calls" in turn.message else ()):
            place = path[:-1] if path[-1] == "function" else path
            old = _id_at(turn, index)
            new = (
                _short_id(old)
                if isinstance(old, str)
                else _short_id(f"{place}{json.dumps(call, sort_keys=True)}")
            )
            waiting.append(new)
            if new != old:
                edits.append(PutValue((*place, "id"), new))
        if turn.role == "tool":
            old = turn.message.get("tool_call_id")
            result = _short_id(old) if isinstance(old, str) else (waiting[0] if waiting else None)
            if result in waiting:
                waiting.remove(result)
            if result is not None and result != old:
                edits.append(PutValue((*turn.path, "tool_call_id"), result))
    return edits


def tools_as_functions(row: RowView) -> list[Edit]:
    """Tools that are bare descriptions of functions get the object around them that OpenAI's form has."""
    edits: list[Edit] = []
    for column in COLUMN_ALIASES["tools"]:
        tools = parse_json_value(row.value.get(column))
        for index, tool in enumerate(tools if isinstance(tools, list) else ()):
            if isinstance(tool, dict) and "name" in tool and "function" not in tool:
                path = (column, index)
                spelled = f'{{"type": "function", "function": {row.spelled(path)}}}'
                edits.append(PutValue(path, {"type": "function", "function": tool}, spelled))
    return edits


def developer_as_system(row: RowView) -> list[Edit]:
    """The role developer becomes system, which is its older name."""
    return [
        PutValue((*turn.path, "role"), "system")
        for turn in row.turns
        if turn.message.get("role") == "developer"
    ]


FORM_CHANGES: tuple[FormChange, ...] = (
    write_missing_content, join_text_parts, arguments_as_text, arguments_as_objects, developer_as_system, shorten_ids,
    tools_as_functions,
)  # fmt: skip


class FitTheTemplate(Remedy):
    rule = "template-rejects-rows"
    what = "write rows in the form that the template takes"
    safe = True
    stage = Stage.TEMPLATE

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._order: list[tuple[FormChange, ...]] = [
            ways
            for size in range(1, len(FORM_CHANGES) + 1)
            for ways in combinations(FORM_CHANGES, size)
            if not _are_opposed(ways)
        ]

    def attempts(self, row: RowView) -> Iterator[Attempt]:
        if row.rejected is None:
            return
        edits = {way: found for way in FORM_CHANGES if (found := way(row))}
        for ways in tuple(self._order):
            if all(way in edits for way in ways):
                yield [edit for way in ways for edit in edits[way]]

    def measure(self, judged: JudgedRows) -> int:
        return len(judged.rejected)


def _are_opposed(ways: tuple[FormChange, ...]) -> bool:
    return arguments_as_text in ways and arguments_as_objects in ways


def is_text_parts(value: list[Any]) -> bool:
    """Are these parts of text, and nothing else in them?"""
    return bool(value) and all(
        isinstance(part, dict)
        and part.get("type", "text") == "text"
        and isinstance(part.get("text"), str)
        and not part.keys() - {"type", "text"}
        for part in value
    )


def argument_objects(turn: Turn) -> Iterator[PutValue]:
    """Edits that make objects of the arguments of a turn which are JSON text, as it is written there."""
    for path, call in turn.calls:
        if (text := object_text(call.get("arguments"))) is not None:
            yield PutValue(
                (*path, "arguments"),
                parse_json(text, ROW, surrogates="keep", exact_integers=True),
                text,
            )


def object_text(value: Any) -> str | None:
    """The JSON of an object that stands in a string, maybe in a string of a string; None where it is none."""
    for _ in range(4):
        if not isinstance(value, str):
            return None
        try:
            parsed = parse_json(value, ROW, surrogates="keep", exact_integers=True)
        except ValueError:
            return None
        if isinstance(parsed, dict):
            return value.strip()
        value = parsed
    return None


def _one_line(text: str) -> str:
    return (
        json.dumps(
            parse_json(text, ROW, surrogates="keep", exact_integers=True), ensure_ascii=False
        )
        if "\n" in text
        else text
    )


def _id_at(turn: Turn, index: int) -> Any:
    calls = parse_json_value(turn.message.get("tool_calls"))
    call = (
        parse_json_value(calls[index]) if isinstance(calls, list) and index < len(calls) else None
    )
    return call.get("id") if isinstance(call, dict) else None


def _short_id(id: str) -> str:
    """The id itself where it is short enough, else one made of it: the same id gives the same."""
    if len(id) == ID_LENGTH and id.isascii() and id.isalnum():
        return id
    digest = blake2b(id.encode("utf-8", "surrogatepass"), digest_size=ID_LENGTH).digest()
    return "".join(ALPHANUMERIC[byte % len(ALPHANUMERIC)] for byte in digest)
