"""YAML and JSON with the place of every key."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from truetune.errors import SpecError
from truetune.parsing.json_reader import check_whole_numbers, parse_json
from truetune.parsing.limits import SETTINGS
from truetune.parsing.yaml_reader import parse_yaml

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

    def spot(self, *keys: Hashable) -> TextPosition | None:
        return self.spots.get(keys)


def read_document(path: Path) -> LocatedDocument:
    """A YAML or JSON file. Raises SpecError with the line of what is wrong."""
    return parse_document(read_config_text(path), str(path))


def read_config_text(path: Path) -> str:
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


def parse_document(text: str, path: str) -> LocatedDocument:
    """YAML or JSON with its places. Raises SpecError with the line of what is wrong."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return _locate_json(text, path)
        except ValueError as error:
            if path.endswith(".json"):
                raise SpecError(f"{path}{_line_of(error)}: not JSON: {_reason(error)}") from None
    return _locate_yaml(text, path)


def _locate_yaml(text: str, path: str) -> LocatedDocument:
    try:
        node, value = parse_yaml(text)
    except ValueError as error:
        raise SpecError(f"{path}{_line_of(error)}: not YAML: {_reason(error)}") from None
    if node is None:
        return LocatedDocument(path, text, None, {})
    spots: dict[KeyPath, TextPosition] = {}
    twice: list[DuplicateKey] = []
    for keys, spot, first in _walk_yaml(node, ()):
        if first is not None:
            twice.append(DuplicateKey(keys, first, spot))
        spots[keys] = spot
    return LocatedDocument(path, text, value, spots, tuple(twice))


def _walk_yaml(
    node: yaml.Node, keys: KeyPath
) -> Iterator[tuple[KeyPath, TextPosition, TextPosition | None]]:
    """The way to each value, its place, and where the same key stood before. The guard has bounded depth and number."""
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            way = (*keys, index)
            yield way, _position_of(item), None
            yield from _walk_yaml(item, way)
    elif isinstance(node, yaml.MappingNode):
        seen: dict[Hashable, TextPosition] = {}
        for key, item in sorted(node.value, key=lambda pair: pair[0].tag != YAML_MERGE_TAG):
            if key.tag == YAML_MERGE_TAG:
                for merged in item.value if isinstance(item, yaml.SequenceNode) else [item]:
                    yield from _walk_yaml(merged, keys)
                continue
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            yield (*keys, name), _position_of(key), seen.get(name)
            seen[name] = _position_of(key)
            yield from _walk_yaml(item, (*keys, name))


def _position_of(node: yaml.Node) -> TextPosition:
    mark = node.start_mark
    return TextPosition(mark.line + 1, mark.column + 1)


def _line_of(error: ValueError) -> str:
    line = getattr(error, "lineno", None)
    return f":{line}" if line is not None else ""


def _reason(error: ValueError) -> str:
    return " ".join(str(getattr(error, "msg", None) or error).split())


_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s"{}\[\],:]+')


def _locate_json(text: str, path: str) -> LocatedDocument:
    value = parse_json(text, SETTINGS, surrogates="refuse", exact_integers=True)
    check_whole_numbers(value)
    spots: dict[KeyPath, TextPosition] = {}
    twice: list[DuplicateKey] = []
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    stack: list[tuple[str, KeyPath]] = []
    keys: KeyPath = ()
    line = index = 0
    expects_key = False
    for match in _JSON_TOKEN.finditer(text):
        token = match[0]
        while line + 1 < len(starts) and starts[line + 1] <= match.start():
            line += 1
        spot = TextPosition(line + 1, match.start() - starts[line] + 1)
        if expects_key and token[0] == '"':
            keys = (*stack[-1][1], parse_json(token, SETTINGS))
            if keys in spots:
                twice.append(DuplicateKey(keys, spots[keys], spot))
            spots[keys] = spot
            expects_key = False
            continue
        if stack and stack[-1][0] == "[" and token not in "],":
            keys = (*stack[-1][1], index)
            spots[keys] = spot
        if token in "{[":
            stack.append((token, keys))
            expects_key, index = token == "{", 0
        elif token in "}]":
            keys = stack.pop()[1]
            expects_key = False
            index = keys[-1] if keys and isinstance(keys[-1], int) else 0
        elif token == ",":
            expects_key = stack[-1][0] == "{"
            index += 1
    return LocatedDocument(path, text, value, spots, tuple(twice))
