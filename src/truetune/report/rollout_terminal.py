"""What the rollouts of a training by rewards are, on a terminal below the findings: each check with its figure, and why
others could not be judged.

A report on rollouts has some fifteen checks, and each of their figures is news of this run, so that they are listed
without -v.
"""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from truetune.checks.reports import RolloutReport
from truetune.report.draw_what_each_kind_of_report_adds import draw_details_by_kind
from truetune.report.lines_on_passed_and_unjudged_checks import describe_examined
from truetune.report.terminal_output import print_without_wrapping_or_escaping
from truetune.report.visible_text import escape_invisible_characters, wrap_text


@draw_details_by_kind.register
def draw_rollouts(report: RolloutReport, console: Console, verbose: bool) -> None:
    """Draw what was examined and what was not; with `verbose` that is listed with all other checks."""
    if verbose:
        return
    lines = [f"fine: {describe_examined(part)}" for part in report.examined]
    lines += [f"not judged: {part}" for part in report.not_judged if not part.asked]
    for line in lines:
        wrapped = wrap_text(escape_invisible_characters(line), console.width)
        print_without_wrapping_or_escaping(console, Text("\n".join(wrapped)))
