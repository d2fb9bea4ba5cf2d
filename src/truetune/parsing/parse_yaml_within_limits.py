"""Parses YAML within limits on nesting, on values and on what aliases repeat, and refuses values
that are no settings.

PyYAML builds nodes by a recursion in C that nothing bounds, so 30 KB of `{` end the process. The events of libyaml come
one by one, without recursion. They are counted first, each alias with all that it repeats; only then nodes are built.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, NamedTuple

import yaml

from truetune.parsing.input_limits import (
    MAX_ALIAS_CHARACTERS,
    MAX_SETTING_BITS,
    SETTINGS,
    InputLimitError,
    Limits,
    refuse_too_large,
)
from truetune.parsing.parse_json_within_limits import refuse_huge_whole_numbers

# PyYAML may be built without libyaml; its own loader gives the same events, and is much slower.
_FAST_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# At 2 s a megabyte, 64 KiB cost 0.1 s more where a file is no YAML, and double 0.3 s.
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
    """How many values and how many characters a part of a document has."""

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
    refuse_too_large(len(text), limits)
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
        raise YamlError(
            _error_on_one_line(error), None if mark is None else mark.line + 1
        ) from None
    # A value that does not fit its own tag fails inside of PyYAML, without a line.
    except _CONSTRUCTION_ERRORS as error:
        reason = (
            _error_on_one_line(error)
            if isinstance(error, ValueError)
            else f"a value that does not fit its tag ({error!r:.60})"
        )
        raise YamlError(reason) from None
    return document


def _load_document(text: str, limits: Limits, new_loader: Any) -> YamlDocument:
    """One document, its events checked before its nodes are built."""
    _refuse_events_over_limits(text, limits, new_loader)
    loader = new_loader(text)
    try:
        node = loader.get_single_node()
        value = None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()
    # `10**400` as a setting fails far from here, in numpy or in a seed.
    refuse_huge_whole_numbers(value)
    _refuse_types_unlike_json(value)
    return YamlDocument(node, value)


def _refuse_events_over_limits(text: str, limits: Limits, new_loader: Any) -> None:
    """Follow the parser's events, and raise InputLimitError at the first that exceeds a limit."""
    guard = _EventGuard(limits)
    loader = new_loader(text)
    try:
        while loader.check_event():
            guard.take(loader.get_event())
    finally:
        loader.dispose()


class _EventGuard:
    """Counts the values and characters of each container that is open, with all that aliases repeat.

    An alias costs a few bytes in a file and all of its anchor in memory: ten lines of nine aliases each are a billion
    values. So the size of what each anchor names is kept, and added again where an alias stands.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._sizes_by_anchor: dict[str | None, _Size] = {}
        # The first stands for the document, so that each value has a container around it.
        self._open = [_Container(None)]

    def take(self, event: Any) -> None:
        """Count the next event. Raises InputLimitError, with the line."""
        line = event.start_mark.line + 1
        if isinstance(event, yaml.CollectionStartEvent):
            self._open.append(_Container(event.anchor))
            if len(self._open) - 1 > self._limits.max_nesting:
                raise InputLimitError(f"nested more than {self._limits.max_nesting} deep", line)
        elif isinstance(event, yaml.CollectionEndEvent):
            closed = self._open.pop()
            self._count_value(_Size(closed.values, closed.characters), closed.anchor, line)
        elif isinstance(event, yaml.AliasEvent):
            self._count_value(self._size_that_alias_repeats(event.anchor, line), None, line)
        elif isinstance(event, yaml.ScalarEvent):
            _refuse_huge_whole_number(event, line)
            self._count_value(_Size(1, len(event.value)), event.anchor, line)

    def _size_that_alias_repeats(self, anchor: str | None, line: int) -> _Size:
        """The values and characters that an alias repeats. Raises InputLimitError if it is inside
        of its own anchor.
        """
        if any(container.anchor == anchor for container in self._open):
            # A value that holds itself: PyYAML builds it, and whoever walks it never ends.
            raise InputLimitError(f"the alias *{anchor} is inside of what it repeats", line)
        # PyYAML raises for an alias without an anchor, when it builds the value.
        return self._sizes_by_anchor.get(anchor, _Size(1, 0))

    def _count_value(self, size: _Size, anchor: str | None, line: int) -> None:
        """Count a value towards the container around it. Raises InputLimitError if that becomes too
        large.
        """
        if anchor is not None:
            self._sizes_by_anchor[anchor] = size
        around = self._open[-1]
        around.values += size.values
        around.characters += size.characters
        if around.values > self._limits.max_values:
            raise InputLimitError(
                f"more than {self._limits.max_values:,} values, those of aliases included", line
            )
        if around.characters > MAX_ALIAS_CHARACTERS:
            raise InputLimitError("aliases repeat more text than settings can have", line)


def _refuse_huge_whole_number(event: Any, line: int) -> None:
    """Raise InputLimitError for an unquoted whole number that no setting can be."""
    is_plain = event.style in (None, "") or event.tag is not None
    # 64 bits have 19 digits at most: shorter values need no pattern.
    if is_plain and len(event.value) >= 19 and _LONG_NUMBER.fullmatch(event.value):
        reason = (
            f"a whole number of {len(event.value):,} characters; at most"
            f" {MAX_SETTING_BITS} bits fit"
        )
        raise InputLimitError(reason, line)


def _refuse_types_unlike_json(value: Any) -> None:
    """Raise YamlError for values that JSON and TOML don't have: sets, bytes, keys that hold values,
    lone surrogates.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, _PLAIN_TYPES) and not _is_date_or_time(key):
                raise YamlError(f"a key is {type(key).__name__}; expected text")
            _refuse_types_unlike_json(key)
            _refuse_types_unlike_json(item)
    elif isinstance(value, list):
        for item in value:
            _refuse_types_unlike_json(item)
    elif isinstance(value, str):
        # YAML can escape half a character; a file or a tokenizer can't hold it.
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise YamlError(
                "half of a surrogate pair (\\ud800 to \\udfff) is no text; write the whole"
                " character"
            )
    elif not isinstance(value, _PLAIN_TYPES) and not _is_date_or_time(value):
        raise YamlError(
            f"a value of the kind {type(value).__name__}; expected text, numbers, lists and"
            " mappings"
        )


def _is_date_or_time(value: Hashable) -> bool:
    """Is it a date or a time?"""
    # `2024-01-01` is a date in YAML and a name to people: the readers of settings write it back as
    # text.
    from datetime import date

    return isinstance(value, date)


def _error_on_one_line(error: Exception) -> str:
    """PyYAML's error message, on one line."""
    return " ".join(str(getattr(error, "problem", None) or error).split())[:_MAX_MESSAGE]
