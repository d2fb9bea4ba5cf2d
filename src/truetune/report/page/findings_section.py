"""The page's section of findings, with their evidence folded in; each case links to its token where
the page has it.

A result without findings is put into words with care: what was not judged, or only seen as a curve, is never called
fine. Anchors are made of codes, so that an address into a page stays good when the report is written again.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from truetune.checks.plot_of_finding import Figure, Mark, Series
from truetune.report.figure_as_characters_or_svg import figure_svg
from truetune.report.page.page_section import Result, Section, render_template
from truetune.report.report_terminal import CURVES_ARE_NOT_ANSWERS
from truetune.report.verdict_and_next_step import NOTHING_TO_JUDGE
from truetune.report.visible_text import count_noun

NO_RECORD = "what was examined is not recorded here: let this release write the report again"
SEVERITIES = ("error", "warning", "info")
MAX_CASES = 50
"""Places of a finding that the page lists; its JSON has all"""
MAX_UNFOLDED = 12
"""Of many findings only the first ones are unfolded"""


def findings_section(result: Result) -> Section | None:
    """The section of findings, for every report; None of a plan or a ladder, which have none."""
    if "findings" not in result:
        return None
    views = result.get("views") or ()
    findings = [
        finding
        | {
            "anchor": anchor,
            # A reader needs the first ones; a page of a hundred open findings has to be
            # scrolled to be understood.
            "open": finding["severity"] != "info" and i < MAX_UNFOLDED,
            "cases": [_case_with_link(case, views) for case in finding["cases"][:MAX_CASES]],
            "svg": finding.get("figure")
            and Markup(figure_svg(_figure_from_json(finding["figure"]))),
        }
        for i, (finding, anchor) in enumerate(findings_with_anchors(result))
    ]
    counts = [(s, sum(finding["severity"] == s for finding in findings)) for s in SEVERITIES]
    word, beyond = describe_outcome_without_findings(result)
    html = render_template(
        "findings.html.jinja",
        findings=findings,
        counts=counts,
        standing=word,
        beyond=beyond,
        examined=result.get("examined") or (),
        not_judged=result.get("not_judged") or (),
    )
    return Section("findings", "Findings", html, {"count": len(findings)})


def describe_outcome_without_findings(result: Result) -> tuple[str, str]:
    """The outcome of a result without findings above a note, in words: a heading, and what it
    means.

    Never "no findings" where nothing was judged: a reader takes it for "all is fine".
    """
    examined = len(result.get("examined") or ())
    curves = _warning_that_curves_miss_answers(result)
    if result.get("failed"):
        return "failed", str(result.get("summary") or result.get("verdict"))
    if result.get("outcome") == "not judged":
        return "not judged", _reasons_not_judged(result)
    if curves:
        return "nothing found in the curves", curves
    if examined:
        return "no findings", f"{count_noun(examined, 'check')} examined and fine"
    if result.get("findings") or result.get("known"):
        return "no findings", "beyond the notes and what an earlier report knows"
    return "not judged", NO_RECORD if "examined" not in result else NOTHING_TO_JUDGE


def _reasons_not_judged(result: Result) -> str:
    """Why what was asked for could not be judged, in one line."""
    missing = [part for part in result.get("not_judged") or () if part["asked"]]
    return "; ".join(f"{part['what']}: {part['reason']}" for part in missing) or NOTHING_TO_JUDGE


def _warning_that_curves_miss_answers(result: Result) -> str:
    """The warning that curves do not show answers, of a result that is on curves alone; empty of
    others.
    """
    runs = result.get("runs") or ()
    subjects = result.get("subjects") or ()
    # The log of a server has no curves: its subject says what it serves.
    has_log = any(
        subject.get("kind") == "run log" and "serves" not in (subject.get("facts") or {})
        for subject in subjects
    )
    # A run whose answers were sampled has shown more than its curves.
    was_watched = any(run.get("looks") for run in runs)
    return CURVES_ARE_NOT_ANSWERS if (has_log or runs) and not was_watched else ""


def findings_with_anchors(result: Result) -> Iterator[tuple[dict[str, Any], str]]:
    """Findings with their anchors in the page: the code; `ROW005-2` for the second of that code."""
    seen = Counter[str]()
    for finding in result.get("findings") or ():
        seen[finding["code"]] += 1
        yield (
            finding,
            finding["code"] + (f"-{seen[finding['code']]}" if seen[finding["code"]] > 1 else ""),
        )


def _case_with_link(case: dict[str, Any], views: Any) -> dict[str, Any]:
    """A case with the link to its row in the page, `href`; `absent` says that the row is not among those
    of the page.
    """
    href = _case_href(case, views)
    return case | {
        "href": href,
        "absent": href is None and bool(views) and case.get("row") is not None,
    }


def _case_href(case: dict[str, Any], views: Any) -> str | None:
    """The link from a case to the token of a row, or to the line of a batch, that the page shows;
    None where it shows neither.
    """
    row, place = case.get("row"), (case.get("file"), case.get("row"))
    if row is None:
        return _batch_line_href(case["text"], views)
    if not any((view.get("file"), view.get("row")) == place for view in views):
        return None
    parts = {
        "row": row,
        "side": case.get("side"),
        "turn": case.get("turn"),
        "tok": case.get("token"),
    }
    return "#" + "&".join(f"{name}={value}" for name, value in parts.items() if value is not None)


def _batch_line_href(text: str, views: Any) -> str | None:
    """The link to the batch line that a case of an audit names at its beginning, `batch 0, line 2:
    ...`. `batch 0, line 2: ...`.
    """
    # A case of an audit has no row: its text begins with the place of its line, and the view of
    # a batch is called by the same words.
    for i, view in enumerate(views):
        # The title may say besides how its tokens were placed.
        place = (view.get("title") or "").split(", placed by ")[0]
        if (
            place
            and view.get("row") is None
            # "line 1" must not be taken for the beginning of "line 12", nor for the line of
            # another rank.
            and re.match(re.escape(place) + r"(?!\w| \(| of rank)", text)
        ):
            return f"#view={i}"
    return None


def _figure_from_json(plain: dict[str, Any]) -> Figure:
    """A finding's figure read from the JSON, for the plot; null becomes NaN."""
    series = (
        Series(
            line["name"], tuple(line["x"]), tuple(math.nan if y is None else y for y in line["y"])
        )
        for line in plain["series"]
    )
    return Figure(
        plain["title"], tuple(series), tuple(Mark(**mark) for mark in plain["marks"]), plain["log"]
    )
