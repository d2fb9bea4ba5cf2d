"""Command lines of the pages: found in blocks and in inline code, and held against click's own parameters."""

from __future__ import annotations

import importlib
import io
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout

import click

from tests.docs.blocks import INDENTED, Block

_WHOLE = re.compile(r"<<|^\s*(for|if|while|export|cd|source|\.)\s|^\w+=\S+$")
"""What more than its own line needs"""
_SYNTAX = re.compile(r"[|><;&`]|\$[\w{(]|^\w+=")
"""What only a shell understands"""


def is_script(block: Block) -> bool:
    """It has to be run as one shell script."""
    return block.language == "sh" and any(
        _WHOLE.search(line) or not _closed(line) for line in lines(block)
    )


def _closed(line: str) -> bool:
    """Its quotes end in it."""
    try:
        return bool(words(line))
    except ValueError:
        return False


def arguments(line: str) -> list[str] | None:
    """Those of a line that is one `truetune` command, with nothing that a shell must do but globs."""
    name, *given = words(line)
    plain = not _SYNTAX.search(re.sub(r"\*", "", " ".join(given)))
    return given if re.fullmatch(r"(\S*/)?truetune", name) and plain else None


def lines(block: Block) -> list[str]:
    """Commands of a block, each in one line; of `console` those behind `$ `."""
    text = block.text.replace("\\\n", " ")
    found = text.splitlines()
    if block.language == "console":
        found = [line[2:] for line in found if line.startswith("$ ")]
    return [bare for line in found if (bare := _bare(line))]


def _bare(line: str) -> str:
    """Without a comment."""
    return re.sub(r"(^|\s)#.*$", "", line).strip()


def words(line: str) -> list[str]:
    """As a shell would part it."""
    return shlex.split(line, comments=True)


def told(block: Block) -> Iterator[str]:
    """`truetune` commands of any block, run or not."""
    if block.language == INDENTED and not block.text.startswith("truetune "):
        return
    for line in lines(block):
        line = re.sub(r"^(\$|-|#|run:|entry:)\s+|\s{2,}\(.*$", "", line)
        for part in re.split(r"\s*(?:&&|\|\||[|;>])\s*", line):
            if re.match(r"(\S*/)?truetune( |$)", _bare(part)):
                yield _bare(part)


def wrong(line: str, *, whole: bool = True) -> str | None:
    """Why the command line would refuse it; `whole` is False where arguments may be left out."""
    try:
        _, *given = words(line)
    except ValueError as error:
        return f"{line}: {error}"
    with redirect_stdout(io.StringIO()):
        return _refused(line, given, whole=whole)


def _refused(line: str, given: list[str], *, whole: bool) -> str | None:
    from truetune.cli import truetune_group

    name, *rest = given or ["--help"]
    command = truetune_group if name.startswith("-") else truetune_group.commands.get(name)
    if command is None:
        return f"{line}: there is no such command"
    try:
        command.make_context(name, [name] if command is truetune_group else rest)
    except click.exceptions.Exit:
        return None
    except click.MissingParameter as error:
        return f"{line}: {error.format_message()}" if whole else None
    except click.NoSuchOption as error:
        return f"{line}: {error.format_message()}"
    except click.UsageError as error:
        return (
            f"{line}: {error.format_message()}"
            if whole or not _stands_for_something(line)
            else None
        )
    return None


def _stands_for_something(line: str) -> bool:
    """A word in capitals or with dots, or an option without its value at the end."""
    return bool(re.search(r"(?<![\w-])[A-Z]+(?!\w)|\.\.\.|…|<\w+>|\s--?[\w-]+$", line))


def names(code: str) -> list[str]:
    """Dotted Python names below `truetune` in inline code."""
    found = re.findall(r"(?<![\w/.-])truetune\.[a-z_]\w*(?:\.\w+)*(?![\w/])", code)
    return [name for name in found if not name.endswith((".yaml", ".json"))]


def resolves(name: str) -> bool:
    """There is a module or an attribute of this name."""
    parts = name.split(".")
    for i in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:i]))
        except ImportError:
            continue
        for part in parts[i:]:
            found = getattr(found, part, None)
        return found is not None
    return False
