"""An audit's findings as experiment trackers take them: counts as curves, a table, and one alert.

The trainer's trackers get them by `send_to_experiment_trackers`, Lightning's loggers by `truetune.lightning`. The
trade-off: messages, fixes and counts are sent, but neither evidence nor cases, since these quote rows of the training
data and a tracker may be another company's server. The report of the run has them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from truetune.checks.findings import Finding
from truetune.checks.reports import Report
from truetune.training.send_to_experiment_trackers import (
    MAX_ALERT_TITLE,
    TrackerAlert,
    TrackerTable,
)

TABLE_NAME = "audit/findings"
TABLE_COLUMNS = ("severity", "code", "rule", "message", "fix", "count", "total")
ALERTED_FINDINGS = 5
"""How many findings an alert spells out: a message on a phone, not a report"""


@dataclass(frozen=True, slots=True)
class TrackedFindings:
    """What is sent of one audit."""

    curves: dict[str, float]
    table: TrackerTable
    alert: TrackerAlert | None


def findings_for_trackers(report: Report, step: int) -> TrackedFindings:
    """What trackers are sent of a report, as of this step of the run.

    There is an alert if the report has an error, or a finding at or above its `fail_on`.
    """
    counts = Counter(finding.severity for finding in report.findings)
    return TrackedFindings(
        {"audit/errors": float(counts["error"]), "audit/warnings": float(counts["warning"])},
        TrackerTable(TABLE_NAME, TABLE_COLUMNS, [_table_row(f) for f in report.findings], step),
        _alert(report, counts["error"]) if counts["error"] or report.failed() else None,
    )


def _table_row(finding: Finding) -> list[str | int | None]:
    """A finding as the values of TABLE_COLUMNS."""
    return [
        finding.severity,
        finding.code,
        finding.rule,
        finding.message,
        finding.remedy,
        finding.count,
        finding.total,
    ]


def _alert(report: Report, errors: int) -> TrackerAlert:
    """One alert for all findings of a report, gravest first."""
    others = len(report.findings) - errors
    title = f"truetune audit: {errors} errors, {others} other findings"[:MAX_ALERT_TITLE]
    shown = report.findings[:ALERTED_FINDINGS]
    lines = [f"{f.severity} {f.code} {f.rule}: {f.message}. Fix: {f.remedy}" for f in shown]
    if len(report.findings) > len(shown):
        lines.append(f"and {len(report.findings) - len(shown)} more, in the table {TABLE_NAME}")
    return TrackerAlert(title, "\n".join(lines), "ERROR" if errors else "WARN")
