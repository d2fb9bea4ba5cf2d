"""Reads the texts of prompts that a script names as files beside it: a rubric in a text file, a
template of Jinja.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from truetune.source.parsed_source_file import Module

SUFFIXES = (".txt", ".md", ".j2", ".jinja", ".jinja2", ".prompt", ".tmpl")
MAX_BYTES = 64_000
"""Of one file. Chosen, not measured: prompts of judges have up to about 10,000 characters, and rows of data more"""
MAX_FILES = 8
"""Files that one script's prompts are read from. Chosen, not measured"""
PLACE_OF_JINJA = re.compile(r"\{\{-?\s*(\w+)[^{}\n]{0,80}\}\}")


class PromptFile(NamedTuple):
    """A file that a script names, and its text with its places in single braces."""

    node: ast.Constant
    text: str


def prompt_files_beside(module: Module) -> Iterator[PromptFile]:
    """The files of prompts that a script names and that lie beside it."""
    names = (
        node
        for node in module.nodes(ast.Constant)
        if isinstance(node.value, str) and node.value.endswith(SUFFIXES) and len(node.value) < 200
    )
    for node in list(names)[:MAX_FILES]:
        text = _text_beside(Path(module.path).parent, str(node.value))
        if text is not None:
            yield PromptFile(node, PLACE_OF_JINJA.sub(r"{\1}", text))


def _text_beside(folder: Path, name: str) -> str | None:
    """The text of a file in the script's folder or the one above, from where scripts are started as
    well.
    """
    if Path(name).is_absolute() or ".." in Path(name).parts:
        return None
    for start in (folder, folder.parent):
        path = start / name
        try:
            if path.is_file() and path.stat().st_size <= MAX_BYTES:
                return path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
    return None
