"""YAML behind the guard: nesting, aliases that repeat or hold themselves, and values that are no settings.

PyYAML builds nodes by a recursion in C that nothing bounds, so 30 KB of `{` end the process. The events of libyaml come
one by one, without recursion. They are counted first, each alias with all that it repeats; only then nodes are built.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, NamedTuple

import yaml

from truetune.parsing.json_reader import check_whole_numbers
from truetune.parsing.limits import (
    MAX_ALIAS_CHARACTERS,
    MAX_SETTING_BITS,
    SETTINGS,
    InputLimitError,
    Limits,
    check_size,
)

_FAST_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_PYTHON_PARSED = 1 << 16
"""Characters of a text that is given to PyYAML's own parser where libyaml refuses it: `{what:}` is YAML for the one and
none for the other. It takes 2 s for a megabyte, and names the context of an error."""
_CONSTRUCTION_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What PyYAML raises for `!!timestamp x`, `!!bool x`, `!!int ""` and their like."""
_PLAIN_TYPES = (str, int, float, type(None))
_LONG_NUMBER = re.compile(r"[-+]?(0x[0-9a-fA-F_]{17,}|0b[01_]{65,}|[0-9_]{20,}|[0-9_:.]{100,})")
"""Whole numbers past 64 bits. Numbers to the base 60 (`1:30:00`) are among them: the time that PyYAML takes for one
grows with the square of its length."""
_MAX_MESSAGE = 200
"""Characters of PyYAML's message that are shown: it repeats what it found"""


class YamlDocument(NamedTuple):
    """The nodes of a text, which know their places, and its value."""

    node: yaml.Node | None
    value: Any


class YamlError(ValueError):
    """The text is no YAML; `lineno` is the line from 1, where it is known."""

    def __init__(self, msg: str, lineno: int | None = None) -> None:
        super().__init__(msg if lineno is None else f"{msg}: line {lineno}")
        self.msg = msg
        self.lineno = lineno


class _Size(NamedTuple):
    values: int
    characters: int


class _Container:
    """A mapping or list that is being read."""

    def __init__(self, anchor: str | None) -> None:
        self.anchor = anchor
        self.values = 1
        self.characters = 0


def parse_yaml(text: str, limits: Limits = SETTINGS) -> YamlDocument:
    """One YAML document. Raises InputLimitError or YamlError, both with the line."""
    check_size(len(text), limits)
    try:
        try:
            document = _load_document(text, limits, _FAST_LOADER)
        except yaml.YAMLError:
            if len(text) > _MAX_PYTHON_PARSED:
                raise
            document = _load_document(text, limits, yaml.SafeLoader)
    except (InputLimitError, YamlError):
        raise
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise YamlError(_error_in_words(error), None if mark is None else mark.line + 1) from None
    except _CONSTRUCTION_ERRORS as error:
        reason = (
            _error_in_words(error)
            if isinstance(error, ValueError)
            else f"a value that does not fit its tag ({error!r:.60})"
        )
        raise YamlError(reason) from None
    return document


def _load_document(text: str, limits: Limits, new_loader: Any) -> YamlDocument:
    _check_events(text, limits, new_loader)
    loader = new_loader(text)
    try:
        node = loader.get_single_node()
        value = None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()
    check_whole_numbers(value)
    _check_kinds(value)
    return YamlDocument(node, value)


def _check_events(text: str, limits: Limits, new_loader: Any) -> None:
    """Follow the events, and stop at the first that goes past a limit."""
    anchors: dict[str | None, _Size] = {}
    whole = _Container(None)
    open_containers = [whole]
    loader = new_loader(text)
    try:
        while loader.check_event():
            event = loader.get_event()
            line = event.start_mark.line + 1
            if isinstance(event, yaml.CollectionStartEvent):
                open_containers.append(_Container(event.anchor))
                if len(open_containers) - 1 > limits.max_nesting:
                    raise InputLimitError(f"nested more than {limits.max_nesting} deep", line)
                continue
            if isinstance(event, yaml.CollectionEndEvent):
                closed = open_containers.pop()
                size = _Size(closed.values, closed.characters)
                anchor: str | None = closed.anchor
            elif isinstance(event, yaml.AliasEvent):
                if any(container.anchor == event.anchor for container in open_containers):
                    raise InputLimitError(
                        f"the alias *{event.anchor} stands inside of what it repeats", line
                    )
                size = anchors.get(event.anchor, _Size(1, 0))
                anchor = None
            elif isinstance(event, yaml.ScalarEvent):
                is_plain = event.style in (None, "") or event.tag is not None
                if is_plain and len(event.value) >= 19 and _LONG_NUMBER.fullmatch(event.value):
                    reason = (
                        f"a whole number of {len(event.value):,} characters; at most"
                        f" {MAX_SETTING_BITS} bits fit"
                    )
                    raise InputLimitError(reason, line)
                size = _Size(1, len(event.value))
                anchor = event.anchor
            else:
                continue
            if anchor is not None:
                anchors[anchor] = size
            around = open_containers[-1]
            around.values += size.values
            around.characters += size.characters
            if around.values > limits.max_values:
                raise InputLimitError(
                    f"more than {limits.max_values:,} values, those of aliases included", line
                )
            if around.characters > MAX_ALIAS_CHARACTERS:
                raise InputLimitError("aliases repeat more text than settings can have", line)
    finally:
        loader.dispose()


def _check_kinds(value: Any) -> None:
    """Raises YamlError for what JSON and TOML don't have: sets, bytes, keys that hold values, halves of characters."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, _PLAIN_TYPES) and not _is_date(key):
                raise YamlError(f"a key is {type(key).__name__}; expected text")
            _check_kinds(key)
            _check_kinds(item)
    elif isinstance(value, list):
        for item in value:
            _check_kinds(item)
    elif isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise YamlError(
                "half of a surrogate pair (\\ud800 to \\udfff) is no text; write the whole"
                " character"
            )
    elif not isinstance(value, _PLAIN_TYPES) and not _is_date(value):
        raise YamlError(
            f"a value of the kind {type(value).__name__}; expected text, numbers, lists and"
            " mappings"
        )


def _is_date(value: Hashable) -> bool:
    from datetime import date

    return isinstance(value, date)


def _error_in_words(error: Exception) -> str:
    return " ".join(str(getattr(error, "problem", None) or error).split())[:_MAX_MESSAGE]
