"""Reads the options of commands that start a module of Python: `python -m tevatron.retriever.driver.train --pooling
eos`."""

from __future__ import annotations

from collections.abc import Mapping

from truetune.parsing.shell_commands import ShellCommand

MODULE_OPTIONS = ("-m", "--module")
SET = "true"
"""What an option without a value is"""


def module_of_command(command: ShellCommand) -> str:
    """The module that a command starts; empty where it starts none."""
    for option, value in zip(command.words, command.words[1:], strict=False):
        if option in MODULE_OPTIONS and "." in value:
            return value
    return ""


def options_of_command(command: ShellCommand) -> Mapping[str, str]:
    """The long options of a command with their values, names with `_`; `true` for one without a value."""
    options: dict[str, str] = {}
    words = command.words
    for number, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, has_value, value = word[2:].partition("=")
        following = words[number + 1] if number + 1 < len(words) else "--"
        if not has_value:
            value = SET if following.startswith("--") else following
        options[name.replace("-", "_")] = value
    return options
