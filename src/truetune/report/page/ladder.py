"""Of the page: ladder."""

from __future__ import annotations

from truetune.report.page.section import Result, Section


def section(result: Result) -> Section | None:
    """Nothing yet."""
    return None
