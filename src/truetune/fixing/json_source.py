"""JSON text with the place of every value in it, so that one can change while all else stays as it is spelled.

Python's decoder forgets how numbers, escapes and spaces were written, and which of two equal keys came first. Here each
value knows its characters. The text is parsed again for each edit: rows are short, and only faulty ones come here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from truetune.parsing.json_reader import parse_json
from truetune.parsing.limits import ROW

_SPACE = re.compile(r"[ \t\n\r]*")
_PLAIN = re.compile(r"[^\s,\]}]+")
_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]",
    re.DOTALL,
)
"""One character of a string as it is spelled: a pair of surrogates is one"""
_decode = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class Node:
    """A value: `text[start:end]` of the document."""

    start: int
    end: int
    string: str | None = None
    """Of a string: what it says"""
    members: tuple[Member, ...] | None = None
    """Of an object, in order; a key may stand twice."""
    items: tuple[Node, ...] | None = None
    """Of an array"""

    def child(self, step: str | int) -> Node | None:
        """The value of a key (the last of that name) or the item at an index; None where there is none."""
        if isinstance(step, str):
            found = self.member(step)
            return found.value if found else None
        if self.items is None or not 0 <= step < len(self.items):
            return None
        return self.items[step]

    def member(self, key: str) -> Member | None:
        """The last member of that name, which is the one that readers take."""
        return next((member for member in reversed(self.members or ()) if member.key == key), None)


@dataclass(frozen=True, slots=True)
class Member:
    """A key of an object, with its value."""

    key: str
    start: int
    """Of the key, with its quotes"""
    end: int
    value: Node


def parse_source(text: str) -> Node:
    """The value of a JSON text. Raises ValueError as `parse_json` does, and for text behind the value."""
    parse_json(text, ROW, surrogates="keep")
    return _value(text, _skip(text, 0))


def respelled(token: str, old: str, new: str, *, ascii_only: bool) -> str:
    """A string as it is spelled in a text, saying `new` instead of `old`; what both share keeps its spelling."""
    begin = _shared(old, new)
    end = _shared(old[begin:][::-1], new[begin:][::-1])
    places = [found.start() for found in _CHARACTER.finditer(token, 1, len(token) - 1)]
    places.append(len(token) - 1)
    middle = json.dumps(new[begin : len(new) - end], ensure_ascii=ascii_only)[1:-1]
    return token[: places[begin]] + middle + token[places[len(old) - end] :]


def _shared(one: str, other: str) -> int:
    """How many characters two texts share at their beginning."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int) -> Node:
    if text[at] == "{":
        return _object(text, at)
    if text[at] == "[":
        return _array(text, at)
    if text[at] == '"':
        said, end = _decode(text, at)
        return Node(at, end, string=said)
    found = _PLAIN.match(text, at)
    return Node(at, found.end() if found else at)


def _object(text: str, start: int) -> Node:
    members = []
    at = _skip(text, start + 1)
    while text[at] != "}":
        key, end = _decode(text, at)
        value = _value(text, _skip(text, _skip(text, end) + 1))
        members.append(Member(key, at, end, value))
        at = _skip(text, value.end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return Node(start, at + 1, members=tuple(members))


def _array(text: str, start: int) -> Node:
    items = []
    at = _skip(text, start + 1)
    while text[at] != "]":
        items.append(_value(text, at))
        at = _skip(text, items[-1].end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return Node(start, at + 1, items=tuple(items))
