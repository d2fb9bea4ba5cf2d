"""Reads an Ollama Modelfile: the instructions that say what to serve, and how.

An instruction stands on a line of its own, or over several lines between three quotes. Nothing is run, and no model is
asked for. The grammar is that of Ollama's documentation ("Modelfile Reference"); words that it does not know are kept
out, for Ollama refuses them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from truetune.errors import UsageError
from truetune.parsing.input_limits import SETTINGS, InputLimitError
from truetune.parsing.read_files_within_limits import read_bytes_within_limit

MODELFILE_NAME = re.compile(r"(?:^|[.\-_])modelfile(?:$|[.\-_])", re.I)
"""`Modelfile`, `Modelfile.q8`, `support.modelfile`"""
# An unclosed triple quote reaches to the end of the file: what stands behind it is text, and no
# instruction.
INSTRUCTION = re.compile(
    r"[ \t]*(from|adapter|parameter|template|system|message|license|requires)\b[ \t]*"
    r"(\"\"\".*?(?:\"\"\"|\Z)|[^\n]*)",
    re.I | re.S,
)
# `#ADAPTER ./lora` is what is left when somebody merged the adapter, or forgot it: a rule compares
# the two.
COMMENTED_ADAPTER = re.compile(r"[ \t]*#[ \t]*adapter\b[ \t]*(\S+)", re.I)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Modelfile."""

    word: str
    """In lower case: `from`, `adapter`, `parameter`, ..."""
    value: str
    """Without its quotes"""
    line: int


@dataclass(frozen=True, slots=True)
class Modelfile:
    """What one Modelfile says."""

    path: str
    instructions: tuple[Instruction, ...]
    commented_adapter: Instruction | None = None
    """An ADAPTER line that is a comment"""

    def all(self, word: str) -> tuple[Instruction, ...]:
        """All instructions of one keyword, such as ADAPTER."""
        return tuple(instruction for instruction in self.instructions if instruction.word == word)

    def last(self, word: str) -> Instruction | None:
        """The last instruction of one keyword, which is the one that counts; None if there is none."""
        return next(iter(reversed(self.all(word))), None)

    @property
    def parameters(self) -> dict[str, Instruction]:
        """Each PARAMETER's name with its instruction; if a name is given more than once, with the
        last one.
        """
        parameters = {}
        for instruction in self.all("parameter"):
            name, _, value = instruction.value.partition(" ")
            parameters[name.lower()] = Instruction(
                name.lower(), _strip_quotes(value), instruction.line
            )
        return parameters

    def local_path_of_instruction(self, word: str) -> Path | None:
        """The file or folder that an instruction names, if it is on this machine; None otherwise."""
        instruction = self.last(word)
        # A null byte in a path raises ValueError deep inside of pathlib.
        if instruction is None or "\0" in instruction.value:
            return None
        name = Path(instruction.value).expanduser()
        # Ollama reads paths relative to the Modelfile; people run it from elsewhere too.
        places = (Path(self.path).parent / name, name)
        try:
            return next((place for place in places if place.exists()), None)
        except OSError:
            return None


def is_modelfile_name(path: Path) -> bool:
    """Is it a Modelfile, by its name?"""
    return MODELFILE_NAME.search(path.name) is not None


def read_modelfile(path: Path) -> Modelfile:
    """What a Modelfile says. Raises UsageError where it can't be read, or holds no instruction of Ollama."""
    try:
        text = read_bytes_within_limit(path, SETTINGS).decode("utf-8", "replace")
    except (OSError, InputLimitError) as error:
        raise UsageError(f"{path}: {error}") from None
    modelfile = parse_modelfile(text, str(path))
    if not modelfile.instructions:
        raise UsageError(f"{path}: holds no instruction of a Modelfile, as FROM or ADAPTER")
    return modelfile


def parse_modelfile(text: str, path: str, first_line: int = 1) -> Modelfile:
    """The instructions in the text of a Modelfile, which begins at line `first_line` of its file;
    empty if it is no Modelfile.
    """
    instructions, commented, start = [], None, 0
    while start < len(text):
        line = text.count("\n", 0, start) + first_line
        match, comment = INSTRUCTION.match(text, start), COMMENTED_ADAPTER.match(text, start)
        if match is not None:
            instructions.append(Instruction(match[1].lower(), _strip_quotes(match[2]), line))
            start = match.end()
        elif comment is not None:
            # The last one, as of instructions.
            commented = Instruction("adapter", _strip_quotes(comment[1]), line)
        end = text.find("\n", start)
        start = len(text) if end < 0 else end + 1
    return Modelfile(path, tuple(instructions), commented)


def _strip_quotes(value: str) -> str:
    """The value without the quotes around it."""
    value = value.strip()
    for quote in ('"""', '"', "'"):
        if value.startswith(quote):
            inner = value[len(quote) :]
            return inner.removesuffix(quote)
    return value
