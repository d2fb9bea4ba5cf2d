"""The token view: any row as the model sees it."""

from __future__ import annotations

from typing import Any

from truetune.render.rendering import Source
from truetune.report.page.section import Result, Section, drawn

SOURCES = [{"key": source.name.lower(), "label": source.label} for source in Source]
"""By the number that `source` of a row's tokens holds"""


def section(result: Result) -> Section | None:
    """Of reports with views."""
    return tokens_section({"rows": list(result["views"])}) if result.get("views") else None


def tokens_section(rows: dict[str, Any]) -> Section:
    """`rows` is {"rows": [row, ...]} (see `rows.py`), or {"remote": path, ...} of a server that gives them."""
    return Section("tokens", "Tokens", drawn("tokens.html.jinja", sources=SOURCES), {"sources": SOURCES, **rows})
