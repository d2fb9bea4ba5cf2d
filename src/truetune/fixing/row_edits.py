"""The kinds of edits of a row, and how each is made in JSON text and in values of a table.

A path leads through keys and indexes, and on into a string that holds JSON (columns of messages and arguments of tool
calls are often kept so): the string then says the edited JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from truetune.fixing.parse_json_with_places import (
    JsonMember,
    JsonNode,
    parse_json_with_places,
    respell_string,
)
from truetune.parsing.input_limits import ROW
from truetune.parsing.parse_json_within_limits import parse_json

ValuePath = tuple[str | int, ...]
# How the row itself is spaced: what is added is written alike, and the diff shows nothing else.
_AFTER_COLON = re.compile(r'":([ \t]*)')
_AFTER_COMMA = re.compile(r",([ \t]*)[\"{\[]")


class EditError(ValueError):
    """The row does not hold what is to be edited, or its form can't hold what should stand there."""


@dataclass(frozen=True, slots=True)
class PutValue:
    """The edit that sets the value at `path` to `value`; a key that is not there yet is added after
    the others.
    """

    path: ValuePath
    value: Any
    json_text: str | None = None
    """The value as JSON text, where it is to stand as it was written"""


@dataclass(frozen=True, slots=True)
class RenameKey:
    """The edit that renames the key at the end of `path` to `key`, in its place."""

    path: ValuePath
    key: str


@dataclass(frozen=True, slots=True)
class RemoveEntry:
    """The edit that removes the key or item at the end of `path`."""

    path: ValuePath


@dataclass(frozen=True, slots=True)
class RemoveRepeatedKey:
    """The edit that removes all but the last of the members called `key` of the object at `path`."""

    path: ValuePath
    key: str


@dataclass(frozen=True, slots=True)
class DropRow:
    """The edit that drops the whole row."""

    path: ValuePath = ()


Edit = PutValue | RenameKey | RemoveEntry | RemoveRepeatedKey | DropRow


def format_path(path: ValuePath) -> str:
    """A path as text: `messages[2].content`"""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def edit_json_text(text: str, edit: Edit) -> str:
    """A JSON text after an edit. Raises EditError."""
    try:
        node = parse_json_with_places(text)
    except ValueError as error:
        raise EditError(f"not JSON: {error}") from None
    for depth, step in enumerate(edit.path):
        # The path leads into JSON that stands as a string: edited as a text of its own, then
        # spelled as a string again.
        if node.string is not None:
            inner = edit_json_text(node.string, replace(edit, path=edit.path[depth:]))
            return _replace_node_text(text, node, _respell_node_string(text, node, inner))
        child = node.child(step)
        last = depth == len(edit.path) - 1
        if last and (child is None or not isinstance(edit, RemoveRepeatedKey | PutValue)):
            return _edit_or_add_member(text, node, step, edit)
        if child is None:
            raise EditError(f"there is no {format_path(edit.path[: depth + 1])}")
        node = child
    return _edit_node(text, node, edit)


def edit_table_value(value: Any, edit: Edit) -> Any:
    """A value of a table after an edit, as a copy; the value itself is left as it is. Raises
    EditError.
    """
    if isinstance(value, str) and (edit.path or isinstance(edit, RemoveRepeatedKey)):
        return edit_json_text(value, edit)
    if not edit.path:
        if not isinstance(edit, PutValue):
            raise EditError("a table has no such edit")
        return edit.value
    step, rest = edit.path[0], edit.path[1:]
    if isinstance(step, str) and isinstance(value, dict):
        return _edit_object(value, step, rest, edit)
    if isinstance(step, int) and isinstance(value, list) and step < len(value):
        return _edit_list(value, step, rest, edit)
    raise EditError(f"there is no {format_path(edit.path)}")


def _edit_list(value: list[Any], index: int, rest: ValuePath, edit: Edit) -> list[Any]:
    """A copy of a list with one of its items edited or removed. Raises EditError."""
    if isinstance(edit, RemoveEntry) and not rest:
        return [*value[:index], *value[index + 1 :]]
    item = edit_table_value(value[index], replace(edit, path=rest))
    return [*value[:index], item, *value[index + 1 :]]


def value_at_path(value: Any, path: ValuePath) -> Any:
    """The value at a path, through strings that hold JSON too; None where there is none."""
    for step in path:
        if isinstance(value, str):
            try:
                value = parse_json(value, ROW, surrogates="keep", exact_integers=True)
            except ValueError:
                return None
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and step < len(value) else None
    return value


def json_text_at_path(text: str, path: ValuePath) -> str:
    """The JSON text of the value at a path, as it stands in its document. Raises EditError."""
    node = parse_json_with_places(text)
    for depth, step in enumerate(path):
        if node.string is not None:
            return json_text_at_path(node.string, path[depth:])
        child = node.child(step)
        if child is None:
            raise EditError(f"there is no {format_path(path[: depth + 1])}")
        node = child
    return text[node.start : node.end]


def find_repeated_keys_in_json(text: str) -> Iterator[tuple[ValuePath, str, bool]]:
    """(object, key, do its values differ?) for each key that an object of a JSON text has twice."""
    yield from _repeated_keys_in_node(text, parse_json_with_places(text), ())


def _repeated_keys_in_node(
    text: str, node: JsonNode, path: ValuePath
) -> Iterator[tuple[ValuePath, str, bool]]:
    """The repeated keys in a value, and in those inside of it; of equal keys the last one is
    entered.
    """
    by_key: dict[str, list[JsonNode]] = {}
    for member in node.members or ():
        by_key.setdefault(member.key, []).append(member.value)
    for key, values in by_key.items():
        if len(values) > 1:
            yield path, key, _do_nodes_differ_in_value(text, values)
        yield from _repeated_keys_in_node(text, values[-1], (*path, key))
    for index, item in enumerate(node.items or ()):
        yield from _repeated_keys_in_node(text, item, (*path, index))


def _do_nodes_differ_in_value(text: str, nodes: Sequence[JsonNode]) -> bool:
    """Do values differ in what they mean, not in their spelling? `1.0` and `1.00` are one."""
    values = [
        parse_json(text[node.start : node.end], ROW, surrogates="keep", exact_integers=True)
        for node in nodes
    ]
    return len({json.dumps(value, sort_keys=True) for value in values}) > 1


def _edit_node(text: str, node: JsonNode, edit: Edit) -> str:
    """The JSON text after an edit, which goes down from a value along the edit's path."""
    if isinstance(edit, PutValue):
        if node.string is not None and isinstance(edit.value, str):
            return _replace_node_text(text, node, _respell_node_string(text, node, edit.value))
        return _replace_node_text(text, node, _spell_new_value(text, edit))
    if isinstance(edit, RemoveRepeatedKey):
        if node.string is not None:
            return _replace_node_text(
                text,
                node,
                _respell_node_string(
                    text, node, edit_json_text(node.string, replace(edit, path=()))
                ),
            )
        # From the last on, so that the places of those before it still hold.
        doubles = [member for member in node.members or () if member.key == edit.key][:-1]
        for member in reversed(doubles):
            text = _remove_entry(text, node, member)
        return text
    raise EditError(f"a row has no {format_path(edit.path)}")


def _edit_or_add_member(text: str, node: JsonNode, step: str | int, edit: Edit) -> str:
    """The text after an edit of a key, or of one that is not there yet. Raises EditError."""
    member = node.member(step) if isinstance(step, str) else None
    if isinstance(edit, PutValue) and isinstance(step, str) and node.members is not None:
        return _add_member(text, node, step, edit)
    if isinstance(edit, RenameKey) and member is not None:
        # ASCII where all of the row is: some files are written so on purpose.
        key = json.dumps(edit.key, ensure_ascii=text.isascii())
        return text[: member.start] + key + text[member.end :]
    if isinstance(edit, RemoveEntry):
        entry = member if isinstance(step, str) else node.child(step)
        if entry is not None:
            return _remove_entry(text, node, entry)
    raise EditError(f"there is no {format_path(edit.path)}")


def _add_member(text: str, node: JsonNode, key: str, edit: PutValue) -> str:
    """The text with a key that its object does not have yet, behind the others."""
    members = node.members or ()
    name = json.dumps(key, ensure_ascii=text.isascii())
    added = f"{name}:{_space_after_separator(_AFTER_COLON, text)}{_spell_new_value(text, edit)}"
    if not members:
        return f"{text[: node.start + 1]}{added}{text[node.end - 1 :]}"
    end = members[-1].value.end
    # Parted as the members before it are, line breaks and indentation included.
    if len(members) > 1:
        before = text[members[-2].value.end : members[-1].start]
    else:
        before = "," + (
            text[node.start + 1 : members[0].start] or _space_after_separator(_AFTER_COMMA, text)
        )
    return f"{text[:end]}{before}{added}{text[end:]}"


def _remove_entry(text: str, node: JsonNode, entry: JsonMember | JsonNode) -> str:
    """The text without a member or item: the comma after it is removed too, or else that before it."""
    if node.members:
        spans = [(member.start, member.value.end) for member in node.members]
    else:
        spans = [(item.start, item.end) for item in node.items or ()]
    place = next(i for i, (start, _) in enumerate(spans) if start == entry.start)
    start, end = spans[place]
    if place + 1 < len(spans):
        end = spans[place + 1][0]
    elif place:
        start = spans[place - 1][1]
    return text[:start] + text[end:]


def _respell_node_string(text: str, node: JsonNode, new_text: str) -> str:
    """The string of a node, spelled as before but with another text."""
    return respell_string(
        text[node.start : node.end], node.string or "", new_text, ascii_only=text.isascii()
    )


def _spell_new_value(text: str, edit: PutValue) -> str:
    """The value of an edit as JSON, spaced as the text is."""
    if edit.json_text is not None:
        return edit.json_text
    separators = (
        f",{_space_after_separator(_AFTER_COMMA, text)}",
        f":{_space_after_separator(_AFTER_COLON, text)}",
    )
    return json.dumps(edit.value, ensure_ascii=text.isascii(), separators=separators)


def _space_after_separator(pattern: re.Pattern[str], text: str) -> str:
    """The space that a text has after a colon or comma; one space where it has neither."""
    match = pattern.search(text)
    return match[1] if match else " "


def _replace_node_text(text: str, node: JsonNode, part: str) -> str:
    """The text with other characters instead of a value."""
    return text[: node.start] + part + text[node.end :]


def _edit_object(value: dict[str, Any], key: str, rest: ValuePath, edit: Edit) -> dict[str, Any]:
    """An object with one of its keys edited, added, renamed or removed. Raises EditError."""
    is_put = isinstance(edit, PutValue)
    # Only a value that is put at the end of the path may be new.
    if key not in value and (rest or not is_put):
        missing = key if is_put else format_path(edit.path)
        raise EditError(f"there is no {missing}")
    if rest or isinstance(edit, PutValue | RemoveRepeatedKey):
        return {**value, key: edit_table_value(value.get(key), replace(edit, path=rest))}
    if isinstance(edit, RenameKey):
        # In its place: an object that is built again keeps the order of its keys.
        return {edit.key if name == key else name: item for name, item in value.items()}
    return {name: item for name, item in value.items() if name != key}
