"""Reads a Makefile's recipes as the lines of a shell script, so that the rules on scripts judge them.

Each line stays on its number; what is no recipe and no plain assignment becomes an empty line. The trade-off: functions
of make (`$(shell ...)`, `$(foreach ...)`) keep their text, which no rule takes for a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

MAKEFILE_NAMES = frozenset(("Makefile", "makefile", "GNUmakefile"))
MAKEFILE_SUFFIX = ".mk"
ASSIGNMENT = re.compile(
    r"(?:export\s+)?(?P<name>[A-Za-z_]\w*)\s*(?:\?|:{1,2}|)=\s*(?P<value>\S*)\s*(?:#.*)?"
)
"""`MODEL ?= org/model`, of one word; a longer value is not followed"""
VARIABLE_OF_MAKE = re.compile(r"\$[({](?P<name>[A-Za-z_]\w*)[)}]")
PREFIX = re.compile(r"\A[@+-](?!-)[@+-]*\s*")
"""What make takes off a recipe's line"""


def is_makefile(path: Path) -> bool:
    """Does the name say that it is a Makefile?"""
    return path.name in MAKEFILE_NAMES or path.suffix == MAKEFILE_SUFFIX


def recipes_as_shell_lines(text: str) -> Iterator[str]:
    """The lines of a Makefile as shell lines, as many as there are."""
    continues = False
    for line in text.splitlines():
        is_recipe = line.startswith("\t")
        assigned = ASSIGNMENT.fullmatch(line)
        if continues or is_recipe:
            yield _with_variables_of_the_shell(PREFIX.sub("", line.strip()) if is_recipe else line)
        elif assigned is not None:
            yield f"{assigned['name']}={_with_variables_of_the_shell(assigned['value'])}"
        else:
            yield ""
        continues = line.endswith("\\") and (continues or is_recipe)


def _with_variables_of_the_shell(text: str) -> str:
    """A text with the variables of make as those of the shell, and `$$` as the `$` that the shell gets."""
    return VARIABLE_OF_MAKE.sub(r"${\g<name>}", text).replace("$$", "$")
