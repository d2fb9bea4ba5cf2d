"""The report as one self-contained page: no network, everything from data escaped, a strict content security policy.

The page is made of a report's JSON, so `truetune report result.json` draws the same page as `--html`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from truetune.report.page import data, findings, laws, measured, run, samples, tokens, verdict
from truetune.report.page.section import Maker, Result, Section
from truetune.report.page.shell import document, framed

if TYPE_CHECKING:
    from truetune.checks.report import Report

SECTIONS: tuple[Maker, ...] = (
    verdict.section,
    findings.section,
    samples.section,
    measured.section,
    run.section,
    samples.looks,
    laws.section,
    data.section,
    tokens.section,
)
"""In the order of the page"""


def page(report: Report) -> str:
    """A whole HTML document; of data it shows as many rows as it has room for."""
    from truetune.checks.report import DataReport
    from truetune.checks.run import with_rows
    from truetune.report.as_json import as_dict
    from truetune.report.page.rows import with_raw

    result = as_dict(with_rows(report) if isinstance(report, DataReport) else report)
    return page_of(result | {"views": with_raw(result["views"], report.spec)})


def page_of(result: Result) -> str:
    """The same of a report's JSON (schema `truetune.report/1`)."""
    made = [section for maker in SECTIONS if (section := maker(result)) is not None]
    return document(_title(result), made, result)


def fragment(report: Report) -> str:
    """The page for a notebook: in a frame of its own, without access to the notebook; with few rows, for it is saved
    there."""
    from truetune.report.as_json import as_dict

    return framed(page_of(as_dict(report)), "truetune report")


def _title(result: Result) -> str:
    subjects: list[dict[str, Any]] = result.get("subjects") or []
    return f"truetune: {subjects[0]['path']}" if subjects else "truetune"


__all__ = ["SECTIONS", "Section", "fragment", "page", "page_of"]
