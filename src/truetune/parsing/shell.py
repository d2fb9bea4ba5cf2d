"""The commands of a shell script, a job file or a Dockerfile, as words, and what a job asks its scheduler for.

Nothing is run or expanded but variables that the file sets once to plain text. What a word holds beyond that keeps its
`$`, and nobody may take it for a value. Commands inside of here-documents are text for another program.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from truetune.errors import DataError
from truetune.parsing.compose import is_compose_file, services
from truetune.parsing.files import read_bounded
from truetune.parsing.harness_results import SINCE, harness_words, is_harness_results
from truetune.parsing.json_reader import parse_json
from truetune.parsing.limits import RESULT, SETTINGS, InputLimitError

SUFFIXES = frozenset((".sh", ".bash", ".zsh", ".slurm", ".sbatch"))
NAMES = frozenset(("Dockerfile", "Containerfile"))
ENDS_A_COMMAND = frozenset((";", "&&", "||", "|", "&", "(", ")", ";;", "|&"))
ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)=(\S*|\"[^\"]*\"|'[^']*')\s*(?:#.*)?")
SET = re.compile(r"(?:^|[\s;&|({])([A-Za-z_]\w*)=|\bread\s+(?:-\w+\s+)*([A-Za-z_]\w*)|\$\{(\w+):=")
"""Anything that sets a variable: `X=1`, `read X`, `${X:=1}`"""
OPENS = re.compile(r"(?:if|case|for|while|until|select)\b")
CLOSES = re.compile(r"(?:fi|esac|done)\b")
"""Lines that begin and end what is run under a condition, or several times"""
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
HERE_DOCUMENT = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
REQUEST = re.compile(r"#SBATCH\s+(--[\w-]+|-[A-Za-z])[=\s]*(\S+)?")
INSTRUCTION = re.compile(r"(?:RUN|CMD|ENTRYPOINT)\s+(?:--\S+\s+)*", re.I)
IMAGE = re.compile(r"FROM\s+(?:--\S+\s+)?(\S+)", re.I)


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One command of a file."""

    words: tuple[str, ...]
    """Without quotes, and without the assignments before them"""
    line: int
    """1-based, where it begins"""
    text: str
    variables: Mapping[str, str] = field(default_factory=dict)
    """What is set for it alone: `CUDA_VISIBLE_DEVICES=0 python train.py`"""

    def behind(self, *words: str) -> tuple[str, ...] | None:
        """The words behind these, which stand beside each other; of the first one, the file name counts. None where
        they are not there."""
        for begin in range(len(self.words) - len(words) + 1):
            first, *rest = self.words[begin : begin + len(words)]
            if (first.rpartition("/")[2], *rest) == words:
                return self.words[begin + len(words) :]
        return None


@dataclass(frozen=True, slots=True)
class CommandFile:
    """A file of commands."""

    path: str
    text: str
    commands: tuple[ShellCommand, ...]
    requests: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Option of the job as the file spells it (`--gres`) -> value, line"""
    image: str = ""
    """What a Dockerfile is made from, last"""
    saved_from: Mapping[str, str] = field(default_factory=dict)
    """Folder that a notebook saves its model to -> the name of the model that it began with"""


def is_command_file(path: Path) -> bool:
    """Does the name say that a file holds commands, or does it record the command of an evaluation (lm_eval)?"""
    by_name = path.suffix in SUFFIXES or path.name in NAMES or path.name.startswith("Dockerfile.")
    return by_name or is_compose_file(path) or is_harness_results(path)


def option(words: tuple[str, ...], *names: str) -> str | None:
    """The value of the last option of these names (dashes and underscores are the same); "" for one without a value,
    None where none is given."""
    wanted = {name.replace("_", "-") for name in names}
    found: str | None = None
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") in wanted:
            following = words[number + 1] if number + 1 < len(words) else ""
            found = value if equals else "" if following.startswith("-") else following
    return found


def number_of(value: str | None) -> int | None:
    """A value as a number; None for variables and words."""
    return int(value) if value is not None and value.isdecimal() else None


def read_commands(path: Path) -> CommandFile:
    """The commands of a file. Raises DataError where it can't be read as text."""
    if is_harness_results(path):
        return _commands_of_results(path)
    if is_compose_file(path):
        found = [ShellCommand(words, line, shlex.join(words)) for line, words in services(path)]
        return CommandFile(str(path), "\n".join(one.text for one in found), tuple(found))
    try:
        text = read_bounded(path, SETTINGS).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError, InputLimitError) as error:
        raise DataError(f"{path}: {error}") from None
    return parse_commands(text, str(path))


def _commands_of_results(path: Path) -> CommandFile:
    """The command that an evaluation was started by, at the line that names its template. Raises DataError."""
    words = harness_words(path)
    text = shlex.join(words)
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    line = next((n for n, one in enumerate(lines, 1) if f'"{SINCE}"' in one), 1)
    command = ShellCommand(words, line, text)
    return CommandFile(str(path), text, (command,) if words else ())


def parse_commands(text: str, path: str) -> CommandFile:
    """A CommandFile of a text."""
    lines = list(_logical_lines(text))
    variables = _variables(lines)
    if not _is_dockerfile(path):
        commands = tuple(
            command for number, line in lines for command in _commands(line, number, variables)
        )
        return CommandFile(path, text, commands, _requests(text))
    images = [match[1] for _, line in lines if (match := IMAGE.match(line))]
    return CommandFile(path, text, tuple(_of_dockerfile(lines)), image=images[-1] if images else "")


def _is_dockerfile(path: str) -> bool:
    name = Path(path).name
    return name in NAMES or name.startswith("Dockerfile.")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; those that continue are one, comments and here-documents are left out."""
    whole, begin, ends_with = "", 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if ends_with:
            ends_with = "" if line.strip() == ends_with else ends_with
            continue
        if line.lstrip().startswith("#"):
            continue
        begin = begin or number
        if line.endswith("\\"):
            whole += line[:-1] + " "
            continue
        whole += line
        if whole.strip():
            yield begin, whole.strip()
        here = HERE_DOCUMENT.search(whole)
        ends_with = here[2] if here else ""
        whole, begin = "", 0
    if whole.strip():
        yield begin, whole.strip()


def assigned_once(text: str) -> dict[str, str]:
    """What a script sets once, under no condition, on a line of its own: name -> value, with the variables in it."""
    return _assigned(list(_logical_lines(text)))


def _assigned(lines: list[tuple[int, str]]) -> dict[str, str]:
    """The same of lines. A value under an `if` may be that of another machine, or of a variable that was not set."""
    counts = Counter(name for _, line in lines for found in SET.findall(line) for name in found)
    values: dict[str, str] = {}
    depth = 0
    for _, line in lines:
        depth += OPENS.match(line) is not None
        match = ASSIGNMENT.fullmatch(line)
        if match is not None and not depth and counts[match[1]] <= 1:
            values[match[1]] = match[2].strip("\"'")
        if CLOSES.search(line):
            depth = max(0, depth - 1)
    return values


def _variables(lines: list[tuple[int, str]]) -> dict[str, str]:
    """What the file sets once, to plain text."""
    return {name: value for name, value in _assigned(lines).items() if not set(value) & set("$`(")}


def _commands(line: str, number: int, variables: Mapping[str, str]) -> Iterator[ShellCommand]:
    """The commands of a line; none where its quotes do not close on it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    try:
        words = list(lexer)
    except ValueError:
        return
    part: list[str] = []
    for word in (*words, ";"):
        if word not in ENDS_A_COMMAND:
            part.append(
                VARIABLE.sub(lambda found: variables.get(found[1] or found[2], found[0]), word)
            )
            continue
        command = _command(part, number)
        if command is not None:
            yield command
        part = []


def _command(words: list[str], number: int) -> ShellCommand | None:
    own: dict[str, str] = {}
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        name, _, value = words[0].partition("=")
        own[name], words = value, words[1:]
    return ShellCommand(tuple(words), number, shlex.join(words), own) if words else None


def _of_dockerfile(lines: list[tuple[int, str]]) -> Iterator[ShellCommand]:
    """What RUN, ENTRYPOINT and CMD start; an ENTRYPOINT takes the CMD behind it as its arguments."""
    entry: ShellCommand | None = None
    for number, line in lines:
        found = INSTRUCTION.match(line)
        if found is None:
            continue
        rest = line[found.end() :]
        made = _exec_form(rest, number) or list(_commands(rest, number, {}))
        kind = found[0].split()[0].upper()
        if kind == "ENTRYPOINT" and len(made) == 1:
            entry = made[0]
        elif kind == "CMD" and entry is not None and rest.startswith("["):
            words = (*entry.words, *(word for command in made for word in command.words))
            entry = ShellCommand(words, entry.line, shlex.join(words))
        else:
            yield from made
    if entry is not None:
        yield entry


def _exec_form(text: str, number: int) -> list[ShellCommand]:
    """`["vllm", "serve"]`"""
    if not text.startswith("["):
        return []
    try:
        words = parse_json(text.encode(), RESULT)
    except ValueError:
        return []
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return []
    return [ShellCommand(tuple(words), number, shlex.join(words))]


def _requests(text: str) -> dict[str, tuple[str, int]]:
    """What the `#SBATCH` lines ask for."""
    found: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = REQUEST.match(line.strip())
        if match is not None:
            found[match[1]] = (match[2] or "", number)
    return found
