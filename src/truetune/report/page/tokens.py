"""The token view: any row as the model sees it."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from truetune.render.rendering import Source
from truetune.report.page.section import Result, Section, drawn
from truetune.report.text import many

SOURCES = [{"key": source.name.lower(), "label": source.label} for source in Source]
"""By the number that `source` of a row's tokens holds"""


def section(result: Result) -> Section | None:
    """Of reports with views."""
    return tokens_section({"rows": list(result["views"])}, _left_out(result)) if result.get("views") else None


def tokens_section(rows: dict[str, Any], note: str = "") -> Section:
    """`rows` is {"rows": [row, ...]} (see `rows.py`), or {"remote": path, ...} of a server that gives them."""
    html = Markup('<p class="place">{}</p>\n').format(note) if note else Markup()
    html += drawn("tokens.html.jinja", sources=SOURCES)
    return Section("tokens", "Tokens", html, {"sources": SOURCES, **rows})


def _left_out(result: Result) -> str:
    """How many of the rows are shown, where not all are."""
    rows = result.get("rows") or 0
    shown = len({view.get("row") for view in result["views"]} - {None})
    return f"{shown:,} of {many(rows, 'row')} are shown; truetune view shows all." if shown < rows else ""
