"""The rows that a report shows: those that its findings cite, rendered again under the settings of the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import singledispatch
from itertools import islice

from truetune.checks.findings import Case
from truetune.checks.report import AuditReport, DataReport, Report
from truetune.report.page.rendered import render_again
from truetune.report.page.rows import (
    REFUSED,
    REFUSED_ROWS,
    Row,
    empty,
    kept,
    line_of,
    row_of,
    within,
)


@singledispatch
def views(report: Report) -> list[Row]:
    """The rows that a report has to show."""
    return []


@views.register
def _(report: DataReport) -> list[Row]:
    made = render_again(report.spec, [view.example.row for view in report.views])
    found = (
        [row_of(view) | kept(view, report.spec) for view in report.views] if made is None else made
    )
    cited = {
        case.origin.row
        for finding in report.findings
        for case in finding.cases
        if case.origin is not None
    }
    return list(
        within([*found, *_refused(report, {row["row"] for row in found})], "row", first=cited)
    )


@views.register
def _(report: AuditReport) -> list[Row]:
    return list(within(map(line_of, report.samples), "line"))


def _refused(report: DataReport, shown: set[int | None]) -> Iterator[Row]:
    """Rows that the template refuses, as far as a finding names them, with what it raised."""
    cases: Iterable[Case] = (
        case for finding in report.findings if finding.code == REFUSED for case in finding.cases
    )
    left = (
        (case.origin, case.text)
        for case in cases
        if case.origin is not None and case.origin.row not in shown
    )
    yield from (empty(origin, text) for origin, text in islice(left, REFUSED_ROWS))
