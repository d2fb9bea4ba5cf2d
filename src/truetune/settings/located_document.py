"""Parses YAML, JSON and TOML with the line and column of every key.

A finding on a setting names its line, and no parser that gives values tells where they stood. YAML is composed to nodes
first, which carry their marks, and the values are made of these same nodes: one parse, one meaning. JSON is parsed by
the standard library and then walked by its tokens, for which the text has to be valid already. YAML's own reading of
JSON was not taken for it: YAML reads `1e5` as text.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from truetune.errors import SpecError
from truetune.parsing.input_limits import SETTINGS
from truetune.parsing.parse_json_within_limits import parse_json, refuse_huge_whole_numbers
from truetune.parsing.parse_toml_within_limits import parse_toml
from truetune.parsing.parse_yaml_within_limits import parse_yaml
from truetune.settings.positions_of_toml_keys import positions_of_toml_keys

MAX_CONFIG_BYTES = SETTINGS.max_bytes
"""Bytes; a larger file is no configuration."""
YAML_MERGE_TAG = "tag:yaml.org,2002:merge"
KeyPath = tuple[Hashable, ...]


class TextPosition(NamedTuple):
    """A place in a text, both from 1."""

    line: int
    column: int


class DuplicateKey(NamedTuple):
    """A key that a mapping holds twice; the second one counts."""

    keys: KeyPath
    first: TextPosition
    second: TextPosition


@dataclass(frozen=True, slots=True)
class LocatedDocument:
    """A parsed file."""

    path: str
    text: str
    value: Any
    spots: Mapping[KeyPath, TextPosition]
    """The way to a value (`("datasets", 0, "path")`) -> where its key stands, or the item of a list"""
    twice: tuple[DuplicateKey, ...] = ()

    def position_of_key(self, *keys: Hashable) -> TextPosition | None:
        """The position of the key that is reached by these keys; None if there is none."""
        return self.spots.get(keys)


def read_located_document(path: Path) -> LocatedDocument:
    """Read a YAML, JSON or TOML file with the position of every key. Raises SpecError with the line of
    what is wrong.
    """
    if path.suffix == ".toml":
        return _parse_located_toml(read_text_of_config_size(path), str(path))
    return parse_located_document(read_text_of_config_size(path), str(path))


def read_text_of_config_size(path: Path) -> str:
    """The text of a file that is small enough to be a configuration. Raises SpecError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from None
    if len(content) > MAX_CONFIG_BYTES:
        raise SpecError(
            f"{path}: larger than {MAX_CONFIG_BYTES >> 20} MiB, so it is no configuration"
        )
    if b"\0" in content[:4096]:
        raise SpecError(f"{path}: a binary file; expected YAML or JSON, as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SpecError(f"{path}:{line}: not UTF-8; save it as UTF-8") from None


def parse_located_document(text: str, path: str) -> LocatedDocument:
    """Parse YAML or JSON with the position of every key. Raises SpecError with the line of what is
    wrong.
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            return _parse_located_json(text, path)
        except ValueError as error:
            if path.endswith(".json"):
                raise SpecError(
                    f"{path}{_line_of_error(error)}: not JSON: {_reason_without_position(error)}"
                ) from None
    return _parse_located_yaml(text, path)


def _parse_located_toml(text: str, path: str) -> LocatedDocument:
    """A TOML document with its positions. Raises SpecError."""
    try:
        value = parse_toml(text)
    except ValueError as error:
        raise SpecError(
            f"{path}{_line_of_error(error)}: not TOML: {_reason_without_position(error)}"
        ) from None
    spots = {keys: TextPosition(*spot) for keys, spot in positions_of_toml_keys(text).items()}
    return LocatedDocument(path, text, value, spots)


def _parse_located_yaml(text: str, path: str) -> LocatedDocument:
    """A YAML document with its positions. Raises SpecError."""
    try:
        node, value = parse_yaml(text)
    except ValueError as error:
        raise SpecError(
            f"{path}{_line_of_error(error)}: not YAML: {_reason_without_position(error)}"
        ) from None
    if node is None:
        return LocatedDocument(path, text, None, {})
    spots: dict[KeyPath, TextPosition] = {}
    twice: list[DuplicateKey] = []
    for keys, spot, first in _key_and_duplicate_positions_in_yaml(node, ()):
        if first is not None:
            twice.append(DuplicateKey(keys, first, spot))
        spots[keys] = spot
    return LocatedDocument(path, text, value, spots, tuple(twice))


def _key_and_duplicate_positions_in_yaml(
    node: yaml.Node, keys: KeyPath
) -> Iterator[tuple[KeyPath, TextPosition, TextPosition | None]]:
    """The keys that lead to each value, its position, and the position where the same key was
    before.
    """
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            way = (*keys, index)
            yield way, _position_of_node(item), None
            yield from _key_and_duplicate_positions_in_yaml(item, way)
    elif isinstance(node, yaml.MappingNode):
        seen: dict[Hashable, TextPosition] = {}
        for key, item in sorted(node.value, key=lambda pair: pair[0].tag != YAML_MERGE_TAG):
            if key.tag == YAML_MERGE_TAG:
                for merged in item.value if isinstance(item, yaml.SequenceNode) else [item]:
                    yield from _key_and_duplicate_positions_in_yaml(merged, keys)
                continue
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            yield (*keys, name), _position_of_node(key), seen.get(name)
            seen[name] = _position_of_node(key)
            yield from _key_and_duplicate_positions_in_yaml(item, (*keys, name))


def _position_of_node(node: yaml.Node) -> TextPosition:
    """The position of a YAML node, from 1."""
    mark = node.start_mark
    return TextPosition(mark.line + 1, mark.column + 1)


def _line_of_error(error: ValueError) -> str:
    """`:LINE` of an error that knows its line; empty otherwise."""
    line = getattr(error, "lineno", None)
    return f":{line}" if line is not None else ""


def _reason_without_position(error: ValueError) -> str:
    """The error's message, without the position in it."""
    return " ".join(str(getattr(error, "msg", None) or error).split())


_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s"{}\[\],:]+')


def _parse_located_json(text: str, path: str) -> LocatedDocument:
    """A JSON document with its positions. Raises ValueError.

    The parser of the standard library tells no places, so the text, which it has accepted, is walked a second time by
    its tokens.
    """
    value = parse_json(text, SETTINGS, surrogates="refuse", exact_integers=True)
    refuse_huge_whole_numbers(value)
    walk = _JsonWalk()
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    line = 0
    for match in _JSON_TOKEN.finditer(text):
        while line + 1 < len(starts) and starts[line + 1] <= match.start():
            line += 1
        walk.take(match[0], TextPosition(line + 1, match.start() - starts[line] + 1))
    return LocatedDocument(path, text, value, walk.spots, tuple(walk.duplicates))


@dataclass(slots=True)
class _JsonWalk:
    """Where in a JSON text a reader of its tokens is."""

    spots: dict[KeyPath, TextPosition] = field(default_factory=dict)
    duplicates: list[DuplicateKey] = field(default_factory=list)
    open_brackets: list[tuple[str, KeyPath]] = field(default_factory=list)
    """`{` or `[`, and the way to the value that it begins"""
    keys: KeyPath = ()
    """The way to the value that follows"""
    index: int = 0
    """Of the next item, inside a list"""
    expects_key: bool = False

    def take(self, token: str, spot: TextPosition) -> None:
        """Move past one token: a bracket, a comma, a colon, a text or a word."""
        if self.expects_key and token[0] == '"':
            # Parsed, because a key may be written with escapes.
            self.keys = (*self.open_brackets[-1][1], parse_json(token, SETTINGS))
            if self.keys in self.spots:
                self.duplicates.append(DuplicateKey(self.keys, self.spots[self.keys], spot))
            self.spots[self.keys] = spot
            self.expects_key = False
            return
        is_in_list = bool(self.open_brackets) and self.open_brackets[-1][0] == "["
        if is_in_list and token not in "],":
            self.keys = (*self.open_brackets[-1][1], self.index)
            self.spots[self.keys] = spot
        if token in "{[":
            self.open_brackets.append((token, self.keys))
            self.expects_key, self.index = token == "{", 0
        elif token in "}]":
            self._leave_container()
        elif token == ",":
            self.expects_key = self.open_brackets[-1][0] == "{"
            self.index += 1

    def _leave_container(self) -> None:
        """Leave an object or a list; inside the list around it, counting continues where it was."""
        self.keys = self.open_brackets.pop()[1]
        self.expects_key = False
        last = self.keys[-1] if self.keys else None
        self.index = last if isinstance(last, int) else 0
