"""Draws the lists of `truetune rules`, and a rule's page for `truetune explain`, on a terminal.

The catalogue loads every rule, which takes longer than a search for a message does. So these lists have a module of
their own, apart from `explain_messages_and_guides_terminal`, whose search must answer without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from truetune.checks.rule import Rule
from truetune.checks.rule_catalogue import all_rules, find_rule, rule_page, station_of_rule
from truetune.report.report_terminal import SEVERITY_STYLES
from truetune.report.rule_pages.rule_page_for_readers import rule_page_for_readers
from truetune.report.terminal_output import borderless_table, print_without_wrapping_or_escaping


def render_rules(console: Console, chosen: Iterable[type[Rule[Any]]] = ()) -> None:
    """Draw a list of rules; in a pipe each on one line."""
    chosen = tuple(chosen or all_rules())
    if not console.is_terminal:
        longest = max(len(rule.name()) for rule in chosen)
        for rule in chosen:
            print_without_wrapping_or_escaping(
                console,
                f"{rule.code}  {rule.name():{longest}}  {rule.severity:7}  {rule.stability:7}"
                f"  {rule.since:10}  {first_line_of_rule_page(rule_page(rule))}",
            )
        return
    table = borderless_table(header=False)
    for _ in range(5):
        table.add_column(no_wrap=True)
    table.add_column()
    for rule in chosen:
        severity = Text(rule.severity, style=SEVERITY_STYLES[rule.severity])
        table.add_row(
            rule.code,
            rule.name(),
            severity,
            rule.stability,
            rule.since,
            Text(first_line_of_rule_page(rule_page(rule))),
        )
    console.print(table)


def rules_json(chosen: Iterable[type[Rule[Any]]]) -> list[dict[str, str]]:
    """The list of rules as plain values."""
    return [
        {
            "code": rule.code,
            "rule": rule.name(),
            "station": station_of_rule(rule),
            "severity": rule.severity,
            "stability": rule.stability,
            "since": rule.since,
            "summary": first_line_of_rule_page(rule_page(rule)),
        }
        for rule in chosen
    ]


def render_rule_page(name: str, console: Console) -> None:
    """Show a rule's page. Raises UsageError for a rule that there is not."""
    rule = find_rule(name)
    page = f"# {rule.code} {rule.name()}\n\n{rule_page_for_readers(rule)}"
    console.print(Markdown(page, code_theme="ansi_dark"))


def rule_page_json(name: str) -> dict[str, str]:
    """A rule with its page, as plain values. Raises UsageError for a rule that there is not."""
    rule = find_rule(name)
    return {**rules_json([rule])[0], "page": rule_page_for_readers(rule)}


def first_line_of_rule_page(markdown: str) -> str:
    """The first line of a rule's page."""
    return markdown.partition("\n")[0]
