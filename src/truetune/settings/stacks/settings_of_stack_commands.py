"""Reads the settings that a command gives TRL, ms-swift or LLaMA-Factory as options: `trl dpo --learning_rate 5e-6
--use_peft`.

Only commands whose options are the whole of their settings are read: one that names a file of settings beside them is
left to the reader of that file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from truetune.parsing.shell_commands import CommandFile, ShellCommand
from truetune.settings.config import Config
from truetune.settings.located_document import KeyPath, LocatedDocument, TextPosition
from truetune.settings.stacks import (
    read_llama_factory_settings,
    read_swift_command_options,
    read_trl_yaml,
)
from truetune.settings.stacks.config_draft import UNKNOWN_VALUE

TRL_COMMAND_CLASSES = {
    "sft": "SFTConfig",
    "dpo": "DPOConfig",
    "kto": "KTOConfig",
    "orpo": "ORPOConfig",
    "cpo": "CPOConfig",
    "grpo": "GRPOConfig",
    "reward": "RewardConfig",
    "rloo": "RLOOConfig",
}
"""Commands of `trl`, which are the names of its scripts too -> the class of their settings"""
SWIFT_COMMANDS = ("sft", "pt", "rlhf")
"""Commands of ms-swift that train"""
TRL_SCRIPT = re.compile(r"(?:.*/)?trl/scripts/(\w+)\.py")
OPTION_WORD = re.compile(r"--[A-Za-z]\w*(?:-\w+)*(?:=.*)?", re.S)
SETTINGS_FILE = ("--config", "-c")
WORD_VALUES = {"true": True, "false": False, "none": None, "null": None}
"""Of an option's value, in small letters"""


def configs_of_commands_without_settings_file(file: CommandFile) -> Iterator[Config]:
    """The settings of each command of a file that trains by options alone, as a Config."""
    for command in file.commands:
        name, options = _settings_class_and_options_of_command(command)
        if name and options:
            yield read_trl_yaml.read_trl_config(_options_as_document(file, command, options), name)
            continue
        for kind in SWIFT_COMMANDS:
            options = command.behind("swift", kind) or ()
            if options and not any(one.partition("=")[0] in SETTINGS_FILE for one in options):
                yield read_swift_command_options.read_swift_options(
                    _options_as_document(file, command, options), kind
                )
        options = command.behind("llamafactory-cli", "train") or ()
        if options and options[0].startswith("--"):
            yield read_llama_factory_settings.read_llama_factory_config(
                _options_as_document(file, command, options)
            )


def _settings_class_and_options_of_command(command: ShellCommand) -> tuple[str, Sequence[str]]:
    """The class of the settings, and the options; empty if it is no such command, or names a file
    of settings.
    """
    for number, word in enumerate(command.words[:-1]):
        of_script = TRL_SCRIPT.fullmatch(word)
        follows = command.words[number + 1]
        if of_script is not None:
            script, rest = of_script[1], command.words[number + 1 :]
        elif word.rpartition("/")[2] == "trl":
            script, rest = follows, command.words[number + 2 :]
        elif word == "-m" and follows.startswith("trl.scripts."):
            script, rest = follows.removeprefix("trl.scripts."), command.words[number + 2 :]
        else:
            continue
        names_a_file = any(one.partition("=")[0] in SETTINGS_FILE for one in rest)
        return ("", ()) if names_a_file else (TRL_COMMAND_CLASSES.get(script, ""), rest)
    return "", ()


def _options_as_document(
    file: CommandFile, command: ShellCommand, options: Sequence[str]
) -> LocatedDocument:
    """The options as a file of settings would hold them, each at its place in the command's file."""
    values: dict[str, Any] = {}
    spots: dict[KeyPath, TextPosition] = {}
    lines = file.text.splitlines()
    for name, given in parse_options(options):
        values[name] = given
        spots[name,] = position_of_option(lines, command.line, name)
    # The text is no YAML: without it, no rule offers an edit of it.
    return LocatedDocument(file.path, "", values, spots)


def _words_before_redirection(words: Sequence[str]) -> Sequence[str]:
    """The words before `> run.log` and `2>&1`, which are no values."""
    end = next((n for n, word in enumerate(words) if set(word) <= set("<>&") and word), len(words))
    is_stream = end < len(words) and words[end] == ">&" and words[end - 1] in ("1", "2")
    return words[: end - is_stream]


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


def _value_of_option_words(words: Sequence[str]) -> Any:
    """The value of an option's words: True without any, a list for several."""
    values = [_parse_word_of_value(word) for word in words]
    if not values:
        return True
    return values[0] if len(values) == 1 else values


def _parse_word_of_value(word: str) -> Any:
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
    """Where the option stands: on the command's first line, or one that continues it."""
    spelled = re.compile(rf"--{name.replace('_', '[-_]')}(?![\w-])")
    for number, line in enumerate(lines[begin - 1 :], begin):
        found = spelled.search(line)
        if found is not None:
            return TextPosition(number, found.start() + 1)
        if not line.rstrip().endswith("\\"):
            break
    return TextPosition(begin, 1)
