"""Fields: the texts of a given row, each with what it is to the model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from truetune.auditing.audit import Field
from truetune.data.columns import COLUMN_ALIASES
from truetune.data.conversation import Conversation, Origin, Problem
from truetune.data.formats import choose_reader
from truetune.data.json_text import parse_json_text
from truetune.data.messages import FUNCTION_CALL, ROLE_BY_SHAREGPT_NAME, is_messages
from truetune.errors import DataError
from truetune.render.render_plan import source_of
from truetune.render.rendering import Source
from truetune.render.template import REASONING_KEYS

CALLS = ("tool_calls", "function_call")
SILENT = ("role", "from", "type", "id", "tool_call_id", "weight", "train", "loss_weight")
"""Keys of a message whose text is no content"""
COLUMNS: dict[str, Source] = {
    "instruction": Source.USER, "input": Source.USER, "prompt": Source.USER, "output": Source.ASSISTANT,
    "completion": Source.ASSISTANT, "chosen": Source.ASSISTANT, "rejected": Source.ASSISTANT, "text": Source.TEXT,
    "system": Source.SYSTEM, "tools": Source.TOOLS, "documents": Source.OTHER, "history": Source.USER,
}  # fmt: skip
"""What a column of text is, by what truetune calls it"""
ANSWERS = (Source.ASSISTANT, Source.REASONING, Source.TOOL_CALL)
TELLING = 12
"""Characters of an answer by which a column is known to be written from it"""
BY_NAME = {alias: source for name, source in COLUMNS.items() for alias in COLUMN_ALIASES[name]}


def conversation_of(row: Mapping[str, Any], number: int) -> Conversation | None:
    """A given row as a Conversation; None where no format fits its columns."""
    body = {key: value for key, value in row.items() if value is not None}
    try:
        return choose_reader(body, None, "row")(body, Origin("given", number + 1, number))
    except DataError:
        return None


def fields_of(
    row: Mapping[str, Any], number: int, conversation: Conversation | None = None
) -> tuple[Field, ...]:
    """The texts of a given row, in its order. Columns that no format knows are OTHER."""
    conversation = conversation or conversation_of(row, number)
    foreign = set(row) if conversation is None else set(conversation.unused)
    made: list[Field] = []
    for name, value in row.items():
        source = Source.OTHER if name in foreign else BY_NAME.get(name, Source.OTHER)
        for path, kind, text in _column(name, value, source):
            if text.strip():
                made.append(Field(path, kind, text, number))
    own = [field.text.strip() for field in made if field.source in ANSWERS]
    return tuple(
        field for field in made if field.source != Source.OTHER or not _is_made_of(field.text, own)
    )


def _is_made_of(text: str, parts: list[str]) -> bool:
    """Is a column's text one that was written from the row's own answers (a rendered `text` beside its messages)?"""
    return any(
        len(part) < len(text.strip()) and len(part) >= TELLING and part in text for part in parts
    )


Text = tuple[str, Source, str]


def _column(name: str, value: Any, source: Source) -> Iterator[Text]:
    value = _messages(value)
    if is_messages(value):
        for i, message in enumerate(value):
            yield from _message(f"{name}[{i}]", message)
    elif source is Source.TOOLS:
        tools = parse_json_text(value, []) if isinstance(value, str) else value
        for i, tool in enumerate(tools if isinstance(tools, list) else [tools]):
            yield from _json(f"{name}[{i}]", tool, source)
    elif name == "history" and isinstance(value, list):
        for i, pair in enumerate(value):
            for j, item in enumerate(pair if isinstance(pair, list | tuple) else ()):
                yield from _any(f"{name}[{i}][{j}]", item, (Source.USER, Source.ASSISTANT)[j % 2])
    else:
        yield from _any(name, value, source)


def _messages(value: Any) -> Any:
    """Messages that stand as JSON, or alone, as a list."""
    if is_messages([value]):
        return [value]
    if isinstance(value, str) and value[:1] in "[{" and value:
        odd: list[Problem] = []
        found = parse_json_text(value, odd)
        found = [found] if isinstance(found, dict) else found
        return found if is_messages(found) else value
    return value


def _message(path: str, message: Mapping[str, Any]) -> Iterator[Text]:
    role = message.get("role", message.get("from"))
    if role == FUNCTION_CALL:
        yield from _any(
            f"{path}.{'value' if 'value' in message else 'content'}",
            message.get("value", message.get("content")),
            Source.TOOL_CALL,
        )
        return
    named = {"role": ROLE_BY_SHAREGPT_NAME.get(role, role) if isinstance(role, str) else role}
    keys = [key for key in message if key not in SILENT]
    for key in sorted(keys, key=lambda key: (key in CALLS) - (key in REASONING_KEYS)):
        source = source_of(("messages", 0, key), [named])
        if key in CALLS:
            calls = (
                parse_json_text(message[key], []) if isinstance(message[key], str) else message[key]
            )
            many = isinstance(calls, list)
            for i, call in enumerate(calls if many else [calls]):
                yield from _call(f"{path}.{key}[{i}]" if many else f"{path}.{key}", call)
        else:
            yield from _any(f"{path}.{key}", message[key], source)


def _call(path: str, call: Any) -> Iterator[Text]:
    """A call's name and arguments, which templates write as they like."""
    if not isinstance(call, Mapping):
        yield from _any(path, call, Source.TOOL_CALL)
        return
    inner = call.get("function")
    body, path = (inner, f"{path}.function") if isinstance(inner, Mapping) else (call, path)
    yield from _any(f"{path}.name", body.get("name"), Source.TOOL_CALL)
    yield from _json(f"{path}.arguments", body.get("arguments"), Source.TOOL_CALL)


def _json(path: str, value: Any, source: Source) -> Iterator[Text]:
    """A value as the JSON that templates write of it, and its leaves for those that write them one by one."""
    if isinstance(value, Mapping | list):
        yield path, source, json.dumps(value, ensure_ascii=False)
    yield from _any(path, value, source)


def _any(path: str, value: Any, source: Source) -> Iterator[Text]:
    if isinstance(value, str):
        yield path, source, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key != "type":
                yield from _any(f"{path}.{key}", item, source)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _any(f"{path}[{i}]", item, source)
