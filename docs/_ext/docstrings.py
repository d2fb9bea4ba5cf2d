"""Docstrings are plain text with `names`: what reStructuredText would take for markup is escaped."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx


def plain(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Indented lines become code blocks, and what stands outside of backticks means itself."""
    out: list[str] = []
    for line in lines:
        if line.startswith("    ") and (not out or not out[-1].strip()):
            out += ["::", ""]
        out.append(line if line.startswith("    ") else _escaped(line))
    lines[:] = out


def _escaped(line: str) -> str:
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(
        part if part.startswith("`") else re.sub(r"([*|\\]|_(?=\W|$))", r"\\\1", part)
        for part in parts
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", plain)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
