"""The report as one self-contained page: no network, everything from data escaped, a strict content security policy.

The page is made of a report's JSON, so `truetune report result.json` draws the same page as `--html`. Each section is a
function of that JSON which gives None where it has nothing to show. The trade-off: JSON is not typed as a report is, so
that every section reads it with care; in return old results, and results of other kinds, are drawn by the same code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from truetune.report.page import (
    answers_section,
    data_section,
    findings_section,
    laws_section,
    run_section,
    summary_section,
    terminal_tables_section,
    tokens_section,
)
from truetune.report.page.html_document import html_document, notebook_frame
from truetune.report.page.page_section import Result, Section, SectionMaker

if TYPE_CHECKING:
    from truetune.checks.reports import Report

SECTIONS: tuple[SectionMaker, ...] = (
    summary_section.summary_section,
    findings_section.findings_section,
    answers_section.sample_answers_section,
    terminal_tables_section.tables_section,
    run_section.run_section,
    answers_section.run_answers_section,
    answers_section.rollouts_section,
    laws_section.laws_section,
    data_section.data_section,
    tokens_section.report_tokens_section,
)
"""In the order of the page"""


def html_page_of_report(report: Report) -> str:
    """A report as a whole HTML document; of data it shows as many rows as it has room for."""
    from truetune.checks.check_data import add_token_views
    from truetune.checks.reports import DataReport
    from truetune.report.as_json import report_as_dict
    from truetune.report.page.json_of_one_examples_tokens import add_raw_text_to_bare_rows

    # A check keeps few rows; a page has room for more, so they are read once again.
    result = report_as_dict(add_token_views(report) if isinstance(report, DataReport) else report)
    return html_page_of_json(
        result | {"views": add_raw_text_to_bare_rows(result["views"], report.spec)}
    )


def html_page_of_json(result: Result) -> str:
    """A report's JSON (schema `truetune.report/1`) as a whole HTML document."""
    sections = [section for maker in SECTIONS for section in (maker(result),) if section]
    return html_document(_page_title(result), sections, result)


def notebook_html(report: Report) -> str:
    """The HTML that shows a report's page in a notebook: in a frame of its own, without access to
    the notebook.
    """
    from truetune.report.as_json import report_as_dict

    return notebook_frame(html_page_of_json(report_as_dict(report)), "truetune report")


def _page_title(result: Result) -> str:
    """The page's title, by the first thing that was looked at."""
    subjects: list[dict[str, Any]] = result.get("subjects") or []
    return f"truetune: {subjects[0]['path']}" if subjects else "truetune"


__all__ = ["SECTIONS", "Section", "html_page_of_json", "html_page_of_report", "notebook_html"]
