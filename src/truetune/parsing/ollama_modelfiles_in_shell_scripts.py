"""Finds the Ollama Modelfiles that a shell script writes from here-documents: `cat > Modelfile
<<EOF`.

Nothing is run. A here-document counts where its command names a Modelfile, or a file that `ollama create -f` takes, and
its text has a FROM. Variables that the script sets once are put in, with the default of `${1:-default}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import NamedTuple

from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.parsing.read_ollama_modelfile import Modelfile, is_modelfile_name, parse_modelfile
from truetune.parsing.shell_commands import (
    HERE_DOCUMENT,
    SCRIPT_SUFFIXES,
    variables_set_once_unconditionally,
)

CREATED_FROM = re.compile(
    r"\bollama\s+create\b[^\n;&|]{0,200}?\s(?:-f|--file)[\s=]+[\"']?([^\s\"';&|]+)"
)
WORD_BORDER = re.compile(r"[\s\"'<>|;&()]+")
VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}$]*))?\}|(\w+))")
# A variable may name others; two rounds resolve what scripts write.
ROUNDS = 2


class _HereDocument(NamedTuple):
    """The text of one here-document, and the command that takes it."""

    command: str
    text: str
    first_line: int
    """1-based, of the text"""
    is_plain: bool
    """Is its end in quotes, so that the shell leaves variables in it as they are?"""


def modelfiles_in_script(path: Path) -> Iterator[Modelfile]:
    """The Modelfiles that a shell script writes from here-documents, at their lines in the script;
    none if it can't be read.
    """
    if path.suffix not in SCRIPT_SUFFIXES:
        return
    try:
        script = read_bytes_within_limit(path, SETTINGS).decode("utf-8", "replace")
    except (OSError, InputLimitError):
        return
    if "<<" not in script:
        return
    created_from = {Path(name).name for name in CREATED_FROM.findall(script)}
    variables = variables_set_once_unconditionally(script)
    for document in _here_documents(script):
        if not _does_command_name_modelfile(document.command, created_from):
            continue
        text = (
            document.text
            if document.is_plain
            else _expand_known_variables(document.text, variables)
        )
        modelfile = parse_modelfile(text, str(path), document.first_line)
        if modelfile.last("from") is not None:
            yield modelfile


def _does_command_name_modelfile(command: str, created_from: Set[str]) -> bool:
    """Does a command name a file that is called a Modelfile, or that `ollama create -f` takes?"""
    names = [Path(word).name for word in WORD_BORDER.split(command) if word]
    return any(is_modelfile_name(Path(name)) or name in created_from for name in names)


def _here_documents(script: str) -> Iterator[_HereDocument]:
    """The here-documents of a script, the first of each command."""
    lines = script.splitlines()
    number = 0
    while number < len(lines):
        command = lines[number]
        number += 1
        begin = HERE_DOCUMENT.search(command)
        if begin is None or command.lstrip().startswith("#"):
            continue
        first = number
        while number < len(lines) and lines[number].strip() != begin[2]:
            number += 1
        text = "\n".join(lines[first:number])
        number += 1
        yield _HereDocument(command, text, first + 1, bool(begin[1]))


def _expand_known_variables(text: str, variables: Mapping[str, str]) -> str:
    """The text with the shell variables that are known replaced by their values, as the shell does."""

    def value(match: re.Match[str]) -> str:
        """What stands for one variable: what is set, else its default, else itself."""
        return variables.get(match[1] or match[3], match[2] or match[0])

    for _ in range(ROUNDS):
        text = VARIABLE.sub(value, text)
    return text.replace("\\$", "$").replace("\\`", "`")
