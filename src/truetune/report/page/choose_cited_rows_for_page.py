"""Chooses the rows that a report's page shows: those that its findings cite, rendered again under
the settings of the run.

A page has room for so many tokens (PAGE_TOKEN_BUDGET), so it holds those that somebody will look for. Rows that the
template refuses have no tokens; they are listed with what it raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import singledispatch
from itertools import islice

from truetune.checks.findings import Case
from truetune.checks.reports import AuditReport, DataReport, Report
from truetune.report.page.json_of_one_examples_tokens import (
    MAX_REFUSED_ROWS,
    REFUSED_ROW_CODE,
    TokenRow,
    fit_rows_into_budget,
    kept_range_entry_if_example_is_cut,
    row_of_batch_line,
    row_without_tokens,
    token_row_of_checked_example,
)
from truetune.report.page.render_rows_beside_ideal import render_rows_beside_contract


@singledispatch
def token_rows_of_report(report: Report) -> list[TokenRow]:
    """The token rows that a report has to show; none but of reports on data and audits."""
    return []


@token_rows_of_report.register
def _rows_of_data_report(report: DataReport) -> list[TokenRow]:
    """The token rows of a report on data: those that its findings cite first, then others as far as
    there is room.
    """
    token_rows = render_rows_beside_contract(
        report.spec, [view.example.row for view in report.views]
    )
    found = (
        [
            token_row_of_checked_example(view)
            | kept_range_entry_if_example_is_cut(view, report.spec)
            for view in report.views
        ]
        if token_rows is None
        else token_rows
    )
    # Cited rows are put in first: they may stand far behind the end of the room.
    cited = {
        case.origin.row
        for finding in report.findings
        for case in finding.cases
        if case.origin is not None
    }
    return list(
        fit_rows_into_budget(
            [*found, *_refused_rows(report, {row["row"] for row in found})], "row", first=cited
        )
    )


@token_rows_of_report.register
def _rows_of_audit_report(report: AuditReport) -> list[TokenRow]:
    """The token rows of an audit: the lines of its batches, as far as there is room."""
    return list(fit_rows_into_budget(map(row_of_batch_line, report.samples), "line"))


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
