"""Records what a report draws on a terminal below its findings, as plain tables and lines: for the
JSON, and so for the page.

A kind of report is drawn once, by the function that draws it on a terminal. Here a console stands in that keeps
what it is given instead of printing it. So a table that the terminal shows can't be missing from the page, and
nobody writes it twice (tests/report/test_shown.py). The trade-off: a page can lay these parts out only as tables
and lines.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from truetune.checks.reports import Report
from truetune.report.draw_what_each_kind_of_report_adds import (
    DRAWER_MODULES,
    draw_details_of_report,
)

DrawnPart = dict[str, Any]


def record_report_details(report: Report) -> list[DrawnPart]:
    """What a report draws below its findings, as plain parts: {"kind": "table", "columns":
    [{"title", "number"}], "rows": [{"style", "cells": [{"text", "style"}]}]} or {"kind": "line",
    "text", "style"}, in order; styles are those of rich (`bold red`).
    """
    # Answers have a section of their own in the page, with much more than the terminal's table.
    if (
        DRAWER_MODULES.get(type(report).__name__, "answers_terminal") == "answers_terminal"
    ):  # samples have a section of their own
        return []
    return record_drawing(lambda console: draw_details_of_report(report, console, True))


def record_drawing(draw: Callable[[Console], None]) -> list[DrawnPart]:
    """Run `draw` on a console that records it, and return all that is drawn as plain tables and
    lines.
    """
    # Wide enough that nothing is folded or cut: the page and readers of JSON wrap for
    # themselves.
    recorder = _RecordingConsole(
        width=1_000, file=io.StringIO(), color_system=None, force_jupyter=False
    )
    draw(recorder)
    return recorder.parts


def page_values_of_plan_ladder_or_merge(
    subject: tuple[str, str], verdict: str, then: str, draw: Callable[[Console], None]
) -> dict[str, Any]:
    """The values that a page needs of a result that is no report (a plan, a ladder, a merge).

    Args:
        subject: kind and path of what was looked at.
        verdict: one sentence.
        then: what to do next.
        draw: draws on a console what the terminal shows.

    Returns:
        `summary`, `next`, `subjects` and `shown` of the JSON.
    """
    kind, path = subject
    return {
        "summary": verdict,
        "next": then,
        "subjects": [{"kind": kind, "path": path, "facts": {}}],
        "shown": record_drawing(draw),
    }


class _RecordingConsole(Console):
    """A console that keeps tables as they are, and everything else line by line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.parts: list[DrawnPart] = []

    def print(self, *objects: Any, **options: Any) -> None:
        """Record what would be printed."""
        for thing in objects:
            # Tables stay tables, cell by cell; their text would have lost which cell is a
            # number.
            if isinstance(thing, Table):
                self.parts.append(_table_part(thing))
            elif isinstance(thing, Text):
                self.parts += [
                    {"kind": "line", "text": line, "style": str(thing.style)}
                    for line in _nonempty_lines(thing.plain)
                ]
            else:
                with self.capture() as drawn:
                    super().print(thing, **options)
                self.parts += [
                    {"kind": "line", "text": line, "style": ""}
                    for line in _nonempty_lines(drawn.get())
                ]


def _nonempty_lines(text: str) -> list[str]:
    """The lines of a text that are not empty, without spaces at their ends."""
    return [line.rstrip() for line in text.split("\n") if line.strip()]


def _table_part(table: Table) -> DrawnPart:
    """A table's titles, cells and styles, as a plain part."""
    columns = [list(column.cells) for column in table.columns]
    return {
        "kind": "table",
        "columns": [
            {"title": _plain_text(c.header), "number": c.justify == "right"} for c in table.columns
        ],
        "rows": [
            # The style travels as rich's own words ("bold red"), which the page maps to its
            # colours.
            {"style": str(row.style or ""), "cells": [_cell_part(column[i]) for column in columns]}
            for i, row in enumerate(table.rows)
        ],
    }


def _cell_part(content: Any) -> dict[str, str]:
    """Text and style of a cell."""
    return {
        "text": _plain_text(content),
        "style": str(content.style) if isinstance(content, Text) else "",
    }


def _plain_text(content: Any) -> str:
    """The text of a cell without its styles."""
    return content.plain if isinstance(content, Text) else str(content)
