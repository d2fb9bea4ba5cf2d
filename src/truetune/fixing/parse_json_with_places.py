"""Parses JSON text with the place of every value in it, so that one value can change while all else
stays as it is spelled.

Python's decoder forgets how numbers, escapes and spaces were written, and which of two equal keys came first. Here each
value knows its characters. The text is parsed again for each edit: rows are short, and only faulty ones come here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from truetune.parsing.input_limits import ROW
from truetune.parsing.parse_json_within_limits import parse_json

_SPACE = re.compile(r"[ \t\n\r]*")
_PLAIN = re.compile(r"[^\s,\]}]+")
# An escaped emoji is twelve characters of JSON and one of Python: without the first alternative,
# places would drift behind it.
_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]",
    re.DOTALL,
)
"""One character of a string as it is spelled: a pair of surrogates is one"""
_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A value in a JSON text: `text[start:end]` of the document, with its members or items."""

    start: int
    end: int
    string: str | None = None
    """Of a string: what it says"""
    members: tuple[JsonMember, ...] | None = None
    """Of an object, in order; a key may stand twice."""
    items: tuple[JsonNode, ...] | None = None
    """Of an array"""

    def child(self, step: str | int) -> JsonNode | None:
        """The value of a key (the last of that name) or the item at an index; None where there is none."""
        if isinstance(step, str):
            member = self.member(step)
            return member.value if member else None
        if self.items is None or not 0 <= step < len(self.items):
            return None
        return self.items[step]

    def member(self, key: str) -> JsonMember | None:
        """The last member of that name, which is the one that readers take."""
        return next((member for member in reversed(self.members or ()) if member.key == key), None)


@dataclass(frozen=True, slots=True)
class JsonMember:
    """A key of an object with its value, each with its place in the text."""

    key: str
    start: int
    """Of the key, with its quotes"""
    end: int
    value: JsonNode


def parse_json_with_places(text: str) -> JsonNode:
    """The root value of a JSON text, in which every value knows its place. Raises ValueError as
    `parse_json` does, and for text behind the value.
    """
    # The guard first: what follows walks by recursion, and trusts that the text is JSON.
    parse_json(text, ROW, surrogates="keep")
    return _parse_value(text, _skip_space(text, 0))


def respell_string(token: str, old: str, new: str, *, ascii_only: bool) -> str:
    """A JSON string that says something else; what old and new text share keeps its spelling.

    Args:
        token: the string with its quotes, as it stands.
        old: what it says.
        new: what it shall say.
        ascii_only: write what is new with escapes alone.
    """
    # Only the middle that differs is written again; `\u00e9` before and behind it stays as somebody
    # spelled it.
    begin = _common_prefix_length(old, new)
    end = _common_prefix_length(old[begin:][::-1], new[begin:][::-1])
    places = [match.start() for match in _CHARACTER.finditer(token, 1, len(token) - 1)]
    # The closing quote, so that the end of the last character has a place too.
    places.append(len(token) - 1)
    middle = json.dumps(new[begin : len(new) - end], ensure_ascii=ascii_only)[1:-1]
    return token[: places[begin]] + middle + token[places[len(old) - end] :]


def _common_prefix_length(one: str, other: str) -> int:
    """How many characters two texts share at their beginning."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))


def _skip_space(text: str, at: int) -> int:
    """The first position at or after `at` that is no white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _parse_value(text: str, at: int) -> JsonNode:
    """Parse the value that begins at a position."""
    if text[at] == "{":
        return _parse_object(text, at)
    if text[at] == "[":
        return _parse_array(text, at)
    if text[at] == '"':
        string, end = _decode(text, at)
        return JsonNode(at, end, string=string)
    match = _PLAIN.match(text, at)
    return JsonNode(at, match.end() if match else at)


def _parse_object(text: str, start: int) -> JsonNode:
    """Parse the object that begins at a position, with its members in order."""
    members = []
    at = _skip_space(text, start + 1)
    while text[at] != "}":
        key, end = _decode(text, at)
        value = _parse_value(text, _skip_space(text, _skip_space(text, end) + 1))
        members.append(JsonMember(key, at, end, value))
        at = _skip_space(text, value.end)
        if text[at] == ",":
            at = _skip_space(text, at + 1)
    return JsonNode(start, at + 1, members=tuple(members))


def _parse_array(text: str, start: int) -> JsonNode:
    """Parse the array that begins at a position."""
    items = []
    at = _skip_space(text, start + 1)
    while text[at] != "]":
        items.append(_parse_value(text, at))
        at = _skip_space(text, items[-1].end)
        if text[at] == ",":
            at = _skip_space(text, at + 1)
    return JsonNode(start, at + 1, items=tuple(items))
