"""Lists the texts of a given row, each with what it is to the model.

Rows come as chats, prompts with answers, or columns of any name; each text gets a path (`messages[1].content`) and a
source (user, assistant, tool call, ...). The trade-off: columns that no format knows are OTHER; they are still listed,
for a wrong column that is trained as the answer must be recognised in the batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from truetune.auditing.audit import Field
from truetune.data.bring_messages_into_openai_form import (
    FUNCTION_CALL,
    ROLE_BY_SHAREGPT_NAME,
    is_messages,
)
from truetune.data.column_name_aliases import COLUMN_ALIASES
from truetune.data.conversation import Conversation, Origin, Problem
from truetune.data.parse_json_columns import parse_json_text_or_keep
from truetune.data.row_format_readers import choose_reader
from truetune.errors import DataError
from truetune.render.rendering import Source
from truetune.render.template import REASONING_KEYS
from truetune.render.unfilled_example_plan import source_of_field

CALL_KEYS = ("tool_calls", "function_call")
KEYS_WITHOUT_CONTENT = (
    "role",
    "from",
    "type",
    "id",
    "tool_call_id",
    "weight",
    "train",
    "loss_weight",
)
"""Keys of a message whose text is no content"""
COLUMN_SOURCES: dict[str, Source] = {
    "instruction": Source.USER,
    "input": Source.USER,
    "prompt": Source.USER,
    "output": Source.ASSISTANT,
    "completion": Source.ASSISTANT,
    "chosen": Source.ASSISTANT,
    "rejected": Source.ASSISTANT,
    "text": Source.TEXT,
    "system": Source.SYSTEM,
    "tools": Source.TOOLS,
    "documents": Source.OTHER,
    "history": Source.USER,
}
"""What a column of text is, by what truetune calls it"""
ANSWER_SOURCES = (Source.ASSISTANT, Source.REASONING, Source.TOOL_CALL)
# Chosen, not measured: an answer such as "yes" stands in any text.
MIN_ANSWER_CHARS = 12
"""Characters of an answer by which a column is known to be written from it"""
SOURCE_BY_COLUMN_NAME = {
    alias: source for name, source in COLUMN_SOURCES.items() for alias in COLUMN_ALIASES[name]
}


def parse_row(row: Mapping[str, Any], number: int) -> Conversation | None:
    """A given row as a Conversation; None where no format fits its columns."""
    # Data sets fill columns that a row lacks with None, which would choose another format.
    body = {key: value for key, value in row.items() if value is not None}
    try:
        return choose_reader(body, None, "row")(body, Origin("given", number + 1, number))
    except DataError:
        return None


def list_row_fields(
    row: Mapping[str, Any], number: int, conversation: Conversation | None = None
) -> tuple[Field, ...]:
    """The texts of a given row, in its order. Columns that no format knows are OTHER."""
    conversation = conversation or parse_row(row, number)
    # Without a format no column is known to be anything.
    foreign = set(row) if conversation is None else set(conversation.unused)
    fields: list[Field] = []
    for name, value in row.items():
        source = Source.OTHER if name in foreign else SOURCE_BY_COLUMN_NAME.get(name, Source.OTHER)
        for path, kind, text in _list_column_texts(name, value, source):
            if text.strip():
                fields.append(Field(path, kind, text, number))
    answers = [field.text.strip() for field in fields if field.source in ANSWER_SOURCES]
    # A rendered `text` beside its messages would be found in each line, and call its own messages a wrong column.
    return tuple(
        field
        for field in fields
        if field.source != Source.OTHER or not _is_text_rendered_from_answers(field.text, answers)
    )


def _is_text_rendered_from_answers(text: str, parts: list[str]) -> bool:
    """Is a column's text one that was written from the row's own answers (a rendered `text` beside its messages)?"""
    return any(
        len(part) < len(text.strip()) and len(part) >= MIN_ANSWER_CHARS and part in text
        for part in parts
    )


FieldText = tuple[str, Source, str]


def _list_column_texts(name: str, value: Any, source: Source) -> Iterator[FieldText]:
    """(path, source, text) of each text in a column, in the order in which templates write them."""
    value = _parse_messages(value)
    if is_messages(value):
        for i, message in enumerate(value):
            yield from _list_message_texts(f"{name}[{i}]", message)
    elif source is Source.TOOLS:
        tools = parse_json_text_or_keep(value, []) if isinstance(value, str) else value
        for i, tool in enumerate(tools if isinstance(tools, list) else [tools]):
            yield from _list_json_texts(f"{name}[{i}]", tool, source)
    # Alpaca's history: pairs of a question and its answer.
    elif name == "history" and isinstance(value, list):
        for i, pair in enumerate(value):
            for j, item in enumerate(pair if isinstance(pair, list | tuple) else ()):
                yield from _list_leaf_texts(
                    f"{name}[{i}][{j}]", item, (Source.USER, Source.ASSISTANT)[j % 2]
                )
    else:
        yield from _list_leaf_texts(name, value, source)


def _parse_messages(value: Any) -> Any:
    """Messages that stand as JSON, or alone, as a list."""
    if is_messages([value]):
        return [value]
    if isinstance(value, str) and value[:1] in "[{" and value:
        odd: list[Problem] = []
        parsed_value = parse_json_text_or_keep(value, odd)
        parsed_value = [parsed_value] if isinstance(parsed_value, dict) else parsed_value
        return parsed_value if is_messages(parsed_value) else value
    return value


def _list_message_texts(path: str, message: Mapping[str, Any]) -> Iterator[FieldText]:
    """The texts of one message; reasoning before content before calls, as templates write them."""
    role = message.get("role", message.get("from"))
    if role == FUNCTION_CALL:
        yield from _list_leaf_texts(
            f"{path}.{'value' if 'value' in message else 'content'}",
            message.get("value", message.get("content")),
            Source.TOOL_CALL,
        )
        return
    named = {"role": ROLE_BY_SHAREGPT_NAME.get(role, role) if isinstance(role, str) else role}
    keys = [key for key in message if key not in KEYS_WITHOUT_CONTENT]
    for key in sorted(keys, key=lambda key: (key in CALL_KEYS) - (key in REASONING_KEYS)):
        source = source_of_field(("messages", 0, key), [named])
        if key in CALL_KEYS:
            calls = (
                parse_json_text_or_keep(message[key], [])
                if isinstance(message[key], str)
                else message[key]
            )
            many = isinstance(calls, list)
            for i, call in enumerate(calls if many else [calls]):
                yield from _list_call_texts(f"{path}.{key}[{i}]" if many else f"{path}.{key}", call)
        else:
            yield from _list_leaf_texts(f"{path}.{key}", message[key], source)


def _list_call_texts(path: str, call: Any) -> Iterator[FieldText]:
    """A call's name and arguments, which templates write as they like."""
    if not isinstance(call, Mapping):
        yield from _list_leaf_texts(path, call, Source.TOOL_CALL)
        return
    # OpenAI's form holds name and arguments one level deeper.
    inner = call.get("function")
    body, path = (inner, f"{path}.function") if isinstance(inner, Mapping) else (call, path)
    yield from _list_leaf_texts(f"{path}.name", body.get("name"), Source.TOOL_CALL)
    yield from _list_json_texts(f"{path}.arguments", body.get("arguments"), Source.TOOL_CALL)


def _list_json_texts(path: str, value: Any, source: Source) -> Iterator[FieldText]:
    """A value as the JSON that templates write of it, and its leaves for those that write them one by one."""
    # Not sorted, and with the letters as they are: so `tojson` of most templates writes it.
    if isinstance(value, Mapping | list):
        yield path, source, json.dumps(value, ensure_ascii=False)
    yield from _list_leaf_texts(path, value, source)


def _list_leaf_texts(path: str, value: Any, source: Source) -> Iterator[FieldText]:
    """The strings in a value, however deep; `type` names the kind of a part and is no text."""
    if isinstance(value, str):
        yield path, source, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key != "type":
                yield from _list_leaf_texts(f"{path}.{key}", item, source)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _list_leaf_texts(f"{path}[{i}]", item, source)
