"""Which laws of a correct trainer hold, by what margin, and what became of the canary's fields.

The margin is given as a factor: "33,600 times below" shows that a tolerance was not chosen to let a law pass.
"""

from __future__ import annotations

import math
from typing import Any

from truetune.report.audit_terminal import describe_law_standing
from truetune.report.page.page_section import Result, Section, render_template


def laws_section(result: Result) -> Section | None:
    """The section of an audit; None where it measured nothing."""
    audit: dict[str, Any] = result.get("audit") or {}
    laws: dict[str, dict[str, Any]] = audit.get("laws") or {}
    canary, notes = audit.get("canary") or (), audit.get("notes") or ()
    if not (laws or canary or notes):
        return None
    html = render_template(
        "laws.html.jinja",
        measured=_measured_law_rows(laws, result),
        untested=[(name, law["untested"]) for name, law in laws.items() if "untested" in law],
        canary=canary,
        notes=notes,
    )
    return Section("laws", "Laws", html)


def _measured_law_rows(laws: dict[str, dict[str, Any]], result: Result) -> list[dict[str, Any]]:
    """The laws that were measured, broken ones first."""
    severity_by_code = {f["code"]: f["severity"] for f in result.get("findings", ())}
    rows = [
        _law_table_row(name, law, severity_by_code) for name, law in laws.items() if "value" in law
    ]
    # sorted() keeps the order of the audit within both groups.
    return sorted(rows, key=lambda row: bool(row["holds"]))


def _law_table_row(
    name: str, law: dict[str, Any], severity_by_code: dict[str, str]
) -> dict[str, Any]:
    """A law's line of the table, as text."""
    # Null in the JSON is a NaN that was measured. NaN holds no law: every comparison with it is
    # false.
    value = math.nan if law["value"] is None else float(law["value"])
    tolerance = float(law["tolerance"])
    return {
        "name": name,
        "value": f"{value:.2g}",
        "tolerance": f"{tolerance:.1g}",
        "unit": law.get("unit", ""),
        "holds": value <= tolerance,
        "margin": _describe_margin(value, tolerance),
        "standing": describe_law_standing(name, value <= tolerance, severity_by_code),
    }


def _describe_margin(value: float, tolerance: float) -> str:
    """How far a value is from its tolerance, as a factor."""
    if math.isnan(value):
        return "not a number"
    if not value:
        return "exact"
    if value <= tolerance:
        return f"{_format_factor(tolerance / value)} below"
    return f"{_format_factor(value / tolerance)} above" if tolerance else "above"


def _format_factor(factor: float) -> str:
    """Three digits: `1.25 times`, `33,600 times`"""
    # Beyond a thousand million the digits say nothing; below a hundred three of them are
    # written as they are.
    if not 100 <= factor < 1e9:
        return f"{factor:.3g} times"
    return f"{round(factor, 2 - math.floor(math.log10(factor))):,.0f} times"
