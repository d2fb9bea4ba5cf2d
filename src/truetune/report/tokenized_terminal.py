"""Tokenized rows on a terminal: tokens by source, and what of them is in the loss.

The rows are ids that somebody else made, so sources are told by the template and the control tokens, and padding
that is stored with them is counted apart: it is no token of a text.
"""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from truetune.checks.inspect_tokenized import TokenizedReport
from truetune.render.rendering import Source
from truetune.report.draw_what_each_kind_of_report_adds import draw_details_by_kind
from truetune.report.terminal_output import borderless_table
from truetune.report.visible_text import format_per_cent_share


@draw_details_by_kind.register
def _draw_tokenized_report(report: TokenizedReport, console: Console, verbose: bool) -> None:
    """Draw the tokens by source of rows that are tokenized already, below the findings."""
    if not report.rows:
        return
    table = borderless_table()
    table.add_column("tokens by source")
    for title in ("in the loss", "not", "share"):
        table.add_column(title, justify="right")
    for source, supervised, context in report.ledger.rows():
        # Only where the cache says what is learned: without labels or a mask the trainer
        # decides, and red would be a guess.
        lost = source is Source.STOP and report.says_what_is_learned and not supervised
        style = "green" if supervised else "red" if lost else ""
        part = format_per_cent_share(supervised + context, report.ledger.total)
        table.add_row(Text(source.label, style=style), f"{supervised:,}", f"{context:,}", part)
    total = report.ledger
    table.add_row(
        "all", f"{total.supervised:,}", f"{total.total - total.supervised:,}", "", style="bold"
    )
    if report.padding:
        table.add_row(Text("stored padding", style="dim"), "", f"{report.padding:,}", "")
    console.print(table)
    console.print()
