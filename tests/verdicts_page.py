"""`python -m tests.verdicts_page` writes the table of figures in docs/verdicts.md.

Each line is what the rule says of the fixed example of its own page.
"""

from __future__ import annotations

import re
from pathlib import Path

import click

from tests.checks.pages.fixed import examined
from truetune.checks.rule_catalogue import DATA, all_rules

PAGE = Path(__file__).parents[1] / "docs" / "verdicts.md"
BEGIN, END = "<!-- figures: python -m tests.verdicts_page -->", "<!-- end of figures -->"
TEMPORARY = re.compile(r"(?:[A-Za-z]:)?[/\\\\]\S*?[/\\\\]tmp[^/\\\\ ]*[/\\\\]")
"""Where an example was laid out"""


def table() -> str:
    """The figures of the rules on data and on settings, in Markdown."""
    lines = ["| rule | its figure, in the fixed example of its page |", "|---|---|"]
    for rule in (*all_rules(*DATA), *all_rules("config")):
        part = examined(rule)
        figure = "(does not apply to it)" if part is None else format_figure(part.figure)
        lines.append(f"| {rule.code} {rule.name()} | {figure} |")
    return "\n".join(lines)


def format_figure(figure: str) -> str:
    """A figure as it can stand in a table."""
    return TEMPORARY.sub("", figure).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def page() -> str:
    """The page with the table of today."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    click.echo(f"wrote {PAGE}")
