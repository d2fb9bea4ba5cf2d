"""Gives the rows that findings cite as JSON Lines, for a file of their own.

A report says where a row stands; to look at forty of them one by one in a large file is work. So the rows are read
again, whole, beside what was said of each. The trade-off: the data is read a second time (up to the last row that
is cited), and must still be there and unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from truetune.checks.reports import Report
from truetune.data.conversation import Origin
from truetune.data.read_rows_as_conversations import read_conversations


def cited_rows_as_jsonl(report: Report) -> str:
    """The rows that findings cite, as JSON lines in the order of rows. Each is {"file", "line",
    "row", "findings": [{"rule", "code", "text", "turn"}], "data"}.

    `data` is the row as it was read; null for a line that holds none. Raises DataError where the data can't be read
    again.
    """
    # One row may have several findings: it is written once, with all of them.
    wanted: dict[Origin, list[dict[str, Any]]] = {}
    for finding in report.findings:
        for case in finding.cases:
            if case.origin is not None:
                citation = {
                    "rule": finding.rule,
                    "code": finding.code,
                    "text": case.text,
                    "turn": case.turn,
                }
                wanted.setdefault(case.origin, []).append(citation)
    if not wanted:
        return ""
    rows = dict(_read_cited_rows(report, wanted))
    lines = []
    # In the order of the data, which is how a reader goes through it, and not in that of the
    # findings.
    for origin in sorted(wanted, key=lambda origin: origin.row):
        place = {"file": origin.file, "line": origin.line, "row": origin.row}
        lines.append(
            # `default=str`: rows of Parquet hold dates and decimals, which JSON has not.
            json.dumps({**place, "findings": wanted[origin], "data": rows.get(origin)}, default=str)
        )
    return "".join(f"{line}\n" for line in lines)


def _read_cited_rows(report: Report, wanted: dict[Origin, Any]) -> Iterator[tuple[Origin, Any]]:
    """Read the data again, and give each wanted row with its place, in the order of the data."""
    # Read under the settings of the check, so that rows have the numbers that the findings
    # cite.
    spec, left = report.spec, len(wanted)
    for row in read_conversations(
        spec.data,
        format=spec.format,
        columns=spec.map,
        on_broken=_do_nothing_for_line_without_row,
        on_empty=_do_nothing_for_line_without_row,
    ):
        if row.origin in wanted:
            yield row.origin, row.raw
            left -= 1
            # The rest of a file of many gigabytes need not be read.
            if not left:
                return


def _do_nothing_for_line_without_row(*_: object) -> None:
    """Do nothing for a line that holds no row."""
