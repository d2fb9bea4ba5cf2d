"""The token view: any row as the model sees it.

Rows are in the page itself, or are fetched from a local server by number (`truetune view`): the same script draws
both. Where not all rows are in the page it says so, with the command that shows the rest.
"""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from truetune.render.rendering import Source
from truetune.report.page.mark_cited_rows import Marks, rules_and_cases_that_cite_rows
from truetune.report.page.page_section import Result, Section, render_template
from truetune.report.visible_text import count_noun

SOURCES = [{"key": source.name.lower(), "label": source.label} for source in Source]
"""By the number that `source` of a row's tokens holds"""


def report_tokens_section(result: Result) -> Section | None:
    """The token view of a report that holds token rows; None of others."""
    views = list(result.get("views") or ())
    if not views:
        return None
    marks = rules_and_cases_that_cite_rows(
        result, {(view.get("file"), view.get("row")) for view in views}
    )
    return token_view_section(
        {"rows": views, "marks": marks}, _note_on_rows_left_out(result, marks)
    )


def token_view_section(rows: dict[str, Any], note: str = "") -> Section:
    """The section with the token view of `rows`: {"rows": [row, ...]} (see `json_of_one_examples_tokens`), or
    {"remote": path, ...} of a server that gives them.

    With `marks` (see `mark_cited_rows`) the rows that findings cite are marked.
    """
    html = Markup('<p class="place">{}</p>\n').format(note) if note else Markup()
    html += render_template("tokens.html.jinja", sources=SOURCES)
    return Section("tokens", "Tokens", html, {"sources": SOURCES, **rows})


def _note_on_rows_left_out(result: Result, marks: Marks) -> str:
    """A note on how many of the rows, and of those that findings cite, are shown, where not all
    are.
    """
    rows = result.get("rows") or 0
    row_count = len({view.get("row") for view in result["views"]} - {None})
    # Nothing was left out, so nothing needs to be said.
    if row_count >= rows:
        return ""
    cited = len(
        {
            (case["file"], case["row"])
            for finding in result.get("findings") or ()
            for case in finding["cases"]
            if case.get("row") is not None
        }
    )
    marked = len({(case[0], case[1]) for case in marks["cases"]})
    of_findings = (
        f", {marked:,} of the {count_noun(cited, 'row')} with findings among them" if cited else ""
    )
    # With findings that have no mark here, the view of the data needs the report to mark them.
    hint = (
        "truetune view DATA --report RESULT.json shows and marks all"
        if marked < cited
        else "truetune view shows all"
    )
    return f"{row_count:,} of {count_noun(rows, 'row')} are shown{of_findings}; {hint}."
