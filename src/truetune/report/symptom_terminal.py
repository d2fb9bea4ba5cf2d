"""The causes of a symptom that are left to check, on a terminal below the findings.

Five are listed, since a reader who looks at each has to be able to finish; `truetune explain GUIDE` has all. It is said
whether rules looked for a cause here in vain, so that nobody reads the list as a verdict.
"""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from truetune.checks.explaining.guides import GUIDES
from truetune.report.draw_what_each_kind_of_report_adds import draw_details_by_kind
from truetune.report.terminal_output import print_without_wrapping_or_escaping
from truetune.report.visible_text import escape_invisible_characters, wrap_text
from truetune.troubleshooting.symptom_report import JudgedCause, SymptomReport

SHOWN_CAUSES = 5
"""Causes in the list: a reader who checks each has to be able to finish"""
SHOWN_BESIDE_ERROR = 3
"""Where an error explains the symptom already: it comes first, and a long list would hide it"""
INDENT = "    "
MAX_LINE_SHOWN = 120
"""Characters of a project's line that are shown below a cause; the rest is cut off"""


@draw_details_by_kind.register
def _draw_symptom_report(report: SymptomReport, console: Console, verbose: bool) -> None:
    """Draw the causes of a symptom that are left to check, and the guides on it."""
    remaining = report.remaining()
    shown = remaining if verbose else _likeliest_causes_to_show(report, remaining)
    if not shown:
        return
    print_without_wrapping_or_escaping(console, Text(_cause_list_heading(report), style="bold"))
    for number, judged in enumerate(shown, 1):
        for line in _cause_lines(number, judged, console.width):
            print_without_wrapping_or_escaping(console, line)
    for judged in report.ruled_out() if verbose else ():
        for line in _ruled_out_lines(judged, console.width):
            print_without_wrapping_or_escaping(console, line)
    named = report.near_guides[:2]
    guides = " · ".join(f"truetune explain {name}" for name in named)
    count = sum(len(guide.causes) for guide in GUIDES if guide.name in named)
    # Causes of rules stand in the list above as well: the guide's own are not all of them.
    print_without_wrapping_or_escaping(
        console, Text(f"the guide, with {count} causes and fixes: {guides}", style="dim")
    )
    print_without_wrapping_or_escaping(console)


def _ruled_out_lines(judged_cause: JudgedCause, width: int) -> list[Text]:
    """Lines on a cause that the project's files rule out, and why."""
    text = escape_invisible_characters(
        f"ruled out by these files: {judged_cause.cause.text}: {judged_cause.against}"
    )
    return [Text(line, style="dim") for line in wrap_text(text, width)]


def _likeliest_causes_to_show(
    report: SymptomReport, remaining: tuple[JudgedCause, ...]
) -> tuple[JudgedCause, ...]:
    """The likeliest causes; where a finding explains the symptom, those after the first ones only
    if they have a line.

    A warning may be of another fault than the one that is seen, and an error of an exception says that, not why.
    """
    explaining = {finding.severity for finding in report.findings[: report.explaining]}
    if "error" in {finding.severity for finding in report.proving_findings()}:
        return remaining[:SHOWN_BESIDE_ERROR]
    if not explaining & {"error", "warning"}:
        return remaining[:SHOWN_CAUSES]
    later = remaining[SHOWN_BESIDE_ERROR:SHOWN_CAUSES]
    return (*remaining[:SHOWN_BESIDE_ERROR], *(judged for judged in later if judged.lines))


def _cause_list_heading(report: SymptomReport) -> str:
    """The heading of the list of causes, by whether anything was found."""
    if any(finding.severity != "info" for finding in report.findings):
        return "Other causes of this symptom, which nothing here proves; the likely ones first:"
    if report.findings[: report.explaining]:
        return "The notes above may explain it. Look at these too; the likely ones first:"
    return "No rule found a cause here. Look at these yourself; the likely ones first:"


def _cause_lines(number: int, judged_cause: JudgedCause, width: int) -> list[Text]:
    """Lines on one cause: what it is, how it is told from others, and whether rules looked for it."""
    head = f"{number:>2}. "
    lines = [
        Text((head if row == 0 else INDENT) + line)
        for row, line in enumerate(
            wrap_text(escape_invisible_characters(judged_cause.cause.text), width - len(INDENT))
        )
    ]
    details = [f"seen as: {judged_cause.cause.seen}"] if judged_cause.cause.seen else []
    # Before what proves it: the reader's own line is the next thing to look at.
    places = [f"look at {line.place}: {line.text[:MAX_LINE_SHOWN]}" for line in judged_cause.lines]
    details = places + details
    if judged_cause.lacking:
        details.append(f"unlikely: nothing in these files shows {', '.join(judged_cause.lacking)}")
    if judged_cause.state == "looked for":
        details.append(f"checked here, without a finding: {', '.join(judged_cause.rules)}")
    elif judged_cause.rules:
        details.append(f"would be proved by: {', '.join(judged_cause.rules)}")
    for detail in details:
        lines += [
            Text(INDENT + line, style="dim")
            for line in wrap_text(escape_invisible_characters(detail), width - len(INDENT))
        ]
    return lines
