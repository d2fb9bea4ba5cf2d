"""Draws the lists of `truetune rules`, and the page of a rule or a fault for `truetune explain`, on a terminal.

The catalogue loads every rule, which takes longer than a search for a message does. So these lists have a module of
their own, apart from `explain_messages_and_guides_terminal`, whose search must answer without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from rich.console import Console
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

from truetune.checks.rule import Rule
from truetune.checks.rule_catalogue import (
    FaultWithRules,
    all_rules,
    find_rule,
    group_rules_by_fault,
    rule_page,
    station_of_rule,
)
from truetune.report.report_terminal import SEVERITY_STYLES
from truetune.report.rule_pages.rule_page_for_readers import rule_page_for_readers
from truetune.report.terminal_output import borderless_table, print_without_wrapping_or_escaping

# Chosen: half of the titles have 71 letters or fewer, and so take two lines at most.
MIN_TITLE_WIDTH = 40
"""Columns beside the other columns from which on a title stands beside them on a terminal"""


class _ColumnWidths(NamedTuple):
    """The widths of the columns of a list of rules, the same below all of its headings."""

    code: int
    name: int

    @classmethod
    def of(cls, rules: Iterable[type[Rule[Any]]]) -> Self:
        """The widths that these rules need."""
        names = [(rule.code, rule.name()) for rule in rules]
        return cls(max(len(code) for code, _ in names), max(len(name) for _, name in names))

    def line_of(self, rule: type[Rule[Any]]) -> str:
        """The columns of a rule but for its title."""
        return (
            f"{rule.code:{self.code}}  {rule.name():{self.name}}  {rule.severity:7}"
            f"  {rule.stability:7}  {rule.since:10}"
        )


def render_rules(console: Console, chosen: Iterable[type[Rule[Any]]] = ()) -> None:
    """Draw a list of rules below the faults that they find; in a pipe each on one line."""
    chosen = tuple(chosen or all_rules())
    totals = _rules_by_fault_name()
    widths = _ColumnWidths.of(chosen)
    for place, fault in enumerate(group_rules_by_fault(chosen)):
        if place:
            print_without_wrapping_or_escaping(console, "")
        count = _count_rules(len(fault.rules), totals[fault.name])
        heading = f"{fault.name} ({count}): {fault.title}"
        if console.is_terminal:
            console.print(Text(heading, style="bold"))
        else:
            print_without_wrapping_or_escaping(console, heading)
        _draw_rules_of_fault(console, fault, widths)


def render_faults(console: Console, chosen: Iterable[type[Rule[Any]]] = ()) -> None:
    """Draw the faults that rules find, each with its number of rules; in a pipe each on one line."""
    faults = group_rules_by_fault(chosen or all_rules())
    totals = _rules_by_fault_name()
    counts = [_count_rules(len(fault.rules), totals[fault.name]) for fault in faults]
    if not console.is_terminal:
        name_width = max(len(fault.name) for fault in faults)
        count_width = max(map(len, counts))
        for fault, count in zip(faults, counts, strict=True):
            print_without_wrapping_or_escaping(
                console, f"{fault.name:{name_width}}  {count:>{count_width}}  {fault.title}"
            )
        return
    table = borderless_table(header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column()
    for fault, count in zip(faults, counts, strict=True):
        table.add_row(fault.name, count, Text(fault.title))
    console.print(table)


def faults_json(chosen: Iterable[type[Rule[Any]]]) -> list[dict[str, Any]]:
    """The faults that rules find as plain values, each with the names of these rules."""
    return [fault_json(fault) for fault in group_rules_by_fault(chosen)]


def fault_json(fault: FaultWithRules) -> dict[str, Any]:
    """A fault with the names of its rules, as plain values."""
    return {
        "fault": fault.name,
        "summary": fault.title,
        "rules": [rule.name() for rule in fault.rules],
    }


def fault_page(fault: FaultWithRules) -> str:
    """What a fault is, and a line for each rule that finds it, in Markdown."""
    lines = (
        f"- `{rule.name()}` ({rule.code}, {rule.severity}): {first_line_of_rule_page(rule_page(rule))}"
        for rule in fault.rules
    )
    return "\n".join((fault.title, "", *lines))


def render_fault(fault: FaultWithRules, console: Console) -> None:
    """Draw what a fault is, and a line for each rule that finds it."""
    console.print(Markdown(f"# {fault.name}"))
    print_without_wrapping_or_escaping(console, fault.title)
    count = _count_rules(len(fault.rules), len(fault.rules))
    print_without_wrapping_or_escaping(console, f"\nFound by {count}:")
    _draw_rules_of_fault(console, fault, _ColumnWidths.of(fault.rules))


def _rules_by_fault_name() -> Counter[str]:
    """How many rules find each fault, those that are not listed included."""
    return Counter(rule.fault_name() for rule in all_rules())


def _count_rules(listed: int, total: int) -> str:
    """How many rules of a fault a list has: `1 rule`, `4 rules`, `2 of 4 rules`."""
    part = "" if listed == total else f"{listed} of "
    return f"{part}{total} rule{'s' * (total != 1)}"


def _draw_rules_of_fault(console: Console, fault: FaultWithRules, widths: _ColumnWidths) -> None:
    """Draw the rules of a fault; in a pipe each on one line."""
    for rule in fault.rules:
        if console.is_terminal:
            _draw_rule_on_terminal(console, rule, widths)
        else:
            title = first_line_of_rule_page(rule_page(rule))
            print_without_wrapping_or_escaping(console, f"{widths.line_of(rule)}  {title}")


def _draw_rule_on_terminal(console: Console, rule: type[Rule[Any]], widths: _ColumnWidths) -> None:
    """Draw a rule with its title beside the other columns, or below them where there is no room."""
    head = Text(widths.line_of(rule).rstrip())
    start = widths.code + widths.name + 2 * len("  ")
    head.stylize(SEVERITY_STYLES[rule.severity], start, start + len(rule.severity))
    title = Text(first_line_of_rule_page(rule_page(rule)))
    if console.width < len(widths.line_of(rule)) + MIN_TITLE_WIDTH:
        console.print(head)
        console.print(Padding(title, (0, 0, 0, widths.code + 2)))
        return
    table = borderless_table(header=False)
    table.add_column(no_wrap=True, width=len(widths.line_of(rule)))
    table.add_column()
    table.add_row(head, title)
    console.print(table)


def rules_json(chosen: Iterable[type[Rule[Any]]]) -> list[dict[str, str]]:
    """The list of rules as plain values."""
    return [
        {
            "code": rule.code,
            "rule": rule.name(),
            "fault": rule.fault_name(),
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
