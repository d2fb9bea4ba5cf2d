"""Marks of the rows that findings cite, for the row list of the page and of `truetune view`.

A mark is made of a report's JSON, so that it can be drawn from a file as well. What it says of a row (all names of
data are text, never markup):

    rules     [{"code", "name", "rule", "severity", "rows", "has_more", "anchor"}, ...], in the report's
              order: `name` is the code, numbered where several findings have it; `rows` is how many
              the finding cites, `has_more` whether its count is larger, `anchor` its place in the
              page, null where it has none
    cases     [[file, row, rule, text, turn, token, side], ...]: `rule` is a place in `rules`, `row` the row's number
              from 0 over all files, the others as in a finding's case, or null
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypedDict

from truetune.report.page.findings_section import findings_with_anchors
from truetune.report.page.page_section import Result
from truetune.report.visible_text import clip_text

MAX_CASE_CHARACTERS = 200
"""Characters of a case's text that a row shows"""
MAX_CASES_PER_ROW = 3
"""Cases of one finding that a row shows"""
RowPlace = tuple[str, int]
"""File and row"""


class MarkedRule(TypedDict):
    """A finding that cites rows, as the marks list it."""

    code: str
    name: str
    rule: str
    severity: str
    rows: int
    has_more: bool
    anchor: str | None


class Marks(TypedDict):
    """Which rows findings cite: `rules` and `cases` as the module says."""

    rules: list[MarkedRule]
    cases: list[list[Any]]


def rules_and_cases_that_cite_rows(
    result: Result, rows: Collection[RowPlace] | None = None, *, in_page: bool = True
) -> Marks:
    """The marks of a report's JSON.

    Args:
        result: the report.
        rows: the rows that are there to be marked; all where None.
        in_page: do the findings stand in the same page?
    """
    marks: Marks = {"rules": [], "cases": []}
    for finding, anchor in findings_with_anchors(result):
        # A case of a script or a setting stands on no row.
        places = {_case_place(case) for case in finding["cases"]} - {None}
        if not places:
            continue
        number = len(marks["rules"])
        marks["rules"].append(
            {
                "code": finding["code"],
                "name": anchor,
                "rule": finding["rule"],
                "severity": finding["severity"],
                "rows": len(places),
                # A finding lists the first of its cases.
                "has_more": (finding.get("count") or 0) > len(finding["cases"]),
                # `truetune view` draws rows without the findings: there a mark leads nowhere.
                "anchor": anchor if in_page else None,
            }
        )
        marks["cases"] += _cases_of_finding(finding["cases"], number, rows)
    return marks


def _cases_of_finding(
    cases: list[dict[str, Any]], number: int, rows: Collection[RowPlace] | None
) -> Iterator[list[Any]]:
    """The cases of a finding on rows that are there, the first few of each row."""
    count_by_row: dict[RowPlace, int] = {}
    for case in cases:
        place = _case_place(case)
        if (
            place is None
            or (rows is not None and place not in rows)
            # A row that breaks one rule in fifty places shows the first few: the finding has
            # them all.
            or count_by_row.get(place, 0) >= MAX_CASES_PER_ROW
        ):
            continue
        count_by_row[place] = count_by_row.get(place, 0) + 1
        yield [
            *place,
            number,
            clip_text(case["text"], MAX_CASE_CHARACTERS),
            *(case.get(name) for name in ("turn", "token", "side")),
        ]


def _case_place(case: Mapping[str, Any]) -> RowPlace | None:
    """File and row of a case; None where it is on no row."""
    file, row = case.get("file"), case.get("row")
    return (file, row) if isinstance(file, str) and isinstance(row, int) else None
