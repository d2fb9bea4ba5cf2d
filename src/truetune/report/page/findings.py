"""Findings with their evidence folded in; each case leads to its token where the page has it."""

from __future__ import annotations

import math
from typing import Any

from markupsafe import Markup

from truetune.checks.figure import Figure, Mark, Series
from truetune.report.page.section import Result, Section, drawn
from truetune.report.plot import svg


def section(result: Result) -> Section:
    """Of every report."""
    viewed = {(view.get("row"), view.get("turn")) for view in result.get("views", ())}
    found = [
        finding
        | {
            "cases": [case | {"href": _href(case, viewed)} for case in finding["cases"]],
            "svg": finding.get("figure") and Markup(svg(_figure(finding["figure"]))),
        }
        for finding in result.get("findings", ())
    ]
    return Section("findings", "Findings", drawn("findings.html.jinja", findings=found))


def _href(case: dict[str, Any], viewed: set[tuple[int | None, int | None]]) -> str | None:
    """To the token of a row that the page shows."""
    row, turn, token = case.get("row"), case.get("turn"), case.get("token")
    if row is None or not any(shown == row for shown, _ in viewed):
        return None
    return f"#row={row}" + (f"&tok={token}" if token is not None else f"&turn={turn}" if turn is not None else "")


def _figure(plain: dict[str, Any]) -> Figure:
    series = (
        Series(line["name"], tuple(line["x"]), tuple(math.nan if y is None else y for y in line["y"]))
        for line in plain["series"]
    )
    return Figure(plain["title"], tuple(series), tuple(Mark(**mark) for mark in plain["marks"]), plain["log"])
