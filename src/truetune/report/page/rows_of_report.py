"""The rows that a report shows: those that its findings cite, rendered again under the settings of the run.

A page has room for so many tokens (PAGE_TOKEN_BUDGET), so it holds those that somebody will look for. Rows that the
template refuses have no tokens; they are listed with what it raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import singledispatch
from itertools import islice

from truetune.checks.findings import Case
from truetune.checks.reports import AuditReport, DataReport, Report
from truetune.report.page.compare_rendered_rows import render_again
from truetune.report.page.token_rows import (
    MAX_REFUSED_ROWS,
    REFUSED_ROW_CODE,
    TokenRow,
    fit_rows,
    kept_range,
    row_of_batch_line,
    row_of_view,
    row_without_tokens,
)


@singledispatch
def report_rows(report: Report) -> list[TokenRow]:
    """The rows that a report has to show."""
    return []


@report_rows.register
def _(report: DataReport) -> list[TokenRow]:
    made = render_again(report.spec, [view.example.row for view in report.views])
    found = (
        [row_of_view(view) | kept_range(view, report.spec) for view in report.views]
        if made is None
        else made
    )
    # Cited rows are put in first: they may stand far behind the end of the room.
    cited = {
        case.origin.row
        for finding in report.findings
        for case in finding.cases
        if case.origin is not None
    }
    return list(
        fit_rows(
            [*found, *_refused_rows(report, {row["row"] for row in found})], "row", first=cited
        )
    )


@report_rows.register
def _(report: AuditReport) -> list[TokenRow]:
    return list(fit_rows(map(row_of_batch_line, report.samples), "line"))


def _refused_rows(report: DataReport, known_rows: set[int | None]) -> Iterator[TokenRow]:
    """Rows that the template refuses, as far as a finding names them, with what it raised."""
    cases: Iterable[Case] = (
        case
        for finding in report.findings
        if finding.code == REFUSED_ROW_CODE
        for case in finding.cases
    )
    left = (
        (case.origin, case.text)
        for case in cases
        if case.origin is not None and case.origin.row not in known_rows
    )
    yield from (row_without_tokens(origin, text) for origin, text in islice(left, MAX_REFUSED_ROWS))
