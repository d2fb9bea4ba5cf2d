"""Reads the options of a command (`--learning_rate 5e-6 --use_peft`) as settings, each with its value and its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from truetune.parsing.shell_commands import CommandFile, ShellCommand
from truetune.settings.located_document import KeyPath, LocatedDocument, TextPosition
from truetune.settings.stacks.config_draft import UNKNOWN_VALUE

OPTION_WORD = re.compile(r"--[A-Za-z][\w.]*(?:-\w+)*(?:=.*)?", re.S)
HIDES_WORDS = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*(?:\[[@*]\])?\})")
"""A variable instead of words: what it sets is not known. `$@`, which nobody fills by default, is none"""
WORD_VALUES = {"true": True, "false": False, "none": None, "null": None}
"""Of an option's value, in small letters"""


def options_as_located_settings(
    file: CommandFile,
    command: ShellCommand,
    words: Sequence[str],
    known_names: Mapping[str, str] = MappingProxyType({}),
) -> LocatedDocument:
    """The options as a file of settings would hold them, each at its place in the command's file.

    Args:
        file: of the command.
        command: whose options they are.
        words: the options and their values.
        known_names: the name of an option as it is written -> the one under which its setting is known here.
    """
    values: dict[str, Any] = {}
    spots: dict[KeyPath, TextPosition] = {}
    lines = file.text.splitlines()
    for written, value in parse_options(words):
        name = known_names.get(written, written)
        values[name] = value
        spots[name,] = position_of_option(lines, command.line, written)
    # The text is no YAML: without it, no rule offers an edit of it.
    return LocatedDocument(file.path, "", values, spots)


def parse_options(words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The options with their values; True for one that has none, a list for several."""
    name = ""
    given: list[str] = []
    for word in (*_words_before_redirection(words), "--end"):
        if OPTION_WORD.fullmatch(word) is None:
            given.append(word)
            continue
        if name:
            yield name, _value_of_option_words(given)
        key, equals, value = word[2:].partition("=")
        name, given = key.replace("-", "_"), [value] if equals else []


def may_variable_hold_options(words: Sequence[str]) -> bool:
    """Does a variable stand where an option may (`--max_len 2048 $MORE`), and not as the value of one?"""
    return any(
        HIDES_WORDS.fullmatch(word) is not None and OPTION_WORD.fullmatch(before) is None
        for before, word in pairwise(("", *words))
    )


def _words_before_redirection(words: Sequence[str]) -> Sequence[str]:
    """The words before `> run.log` and `2>&1`, which are no values."""
    end = next((n for n, word in enumerate(words) if set(word) <= set("<>&") and word), len(words))
    is_stream = end < len(words) and words[end] == ">&" and words[end - 1] in ("1", "2")
    return words[: end - is_stream]


def _value_of_option_words(words: Sequence[str]) -> Any:
    """The value of an option's words: True without any, a list for several."""
    values = [parse_value_word(word) for word in words]
    if not values:
        return True
    return values[0] if len(values) == 1 else values


def parse_value_word(word: str) -> Any:
    """A number, a truth value or a text; UNKNOWN_VALUE where the shell puts something in."""
    if "$" in word or "`" in word:
        return UNKNOWN_VALUE
    if word.lower() in WORD_VALUES:
        return WORD_VALUES[word.lower()]
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            pass
    return word


def position_of_option(lines: Sequence[str], begin: int, name: str) -> TextPosition:
    """Where an option stands in the lines of a command that begins on a line."""
    spelled = re.escape(name).replace("_", "[-_]")
    return position_in_command(lines, begin, re.compile(rf"--{spelled}(?![\w.-])"))


def position_in_command(lines: Sequence[str], begin: int, pattern: re.Pattern[str]) -> TextPosition:
    """Where a pattern is found: on the command's first line, or one that continues it; else its beginning."""
    for number, line in enumerate(lines[begin - 1 :], begin):
        match = pattern.search(line)
        if match is not None:
            return TextPosition(number, match.start() + 1)
        if not line.rstrip().endswith("\\"):
            break
    return TextPosition(begin, 1)
