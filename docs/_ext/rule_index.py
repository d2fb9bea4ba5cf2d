"""The index of rules: all of them by the fault that they find, with a search and filters that a script
in the page switches on.

The list is in the page itself, so that it works from a file, without a network, and without the
script. The script (`_static/rule_index.js`) shows some rules at a time, and keeps the filters in
the address after `#`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape

from rule_families import AnyRule, Family, summary_of_rule

from truetune.checks.rule_catalogue import FaultWithRules, group_rules_by_fault
from truetune.report.rule_pages.rule_page_for_readers import severity_under_trainer
from truetune.trainers import TRAINERS

NOT_APPLYING = "none"
"""Severity of a rule under a trainer of whose runs it says nothing"""
INTRODUCTION = """\
# Rules

A fine-tune can have {faults} faults. {count} rules find them, from the rows in a file to the answers
of a server: a fault has a rule for each kind of file or measurement that shows it. Each rule has a
code that never changes; the first letters are its family, which says what it looks at.
`truetune rules --faults` lists the faults, `truetune rules` the rules below them, and
`truetune explain NAME` shows a rule or a fault in the terminal. `--select` and `--ignore` take the
names of both. *Severity* is the highest that a rule gives. A *stable* rule has a case in the
[bug bench](../bugs.md), a test on real tokenizers, models or trainers, and a public source; one
that lacks any of them is a *preview*. Both run; `--select stable` leaves the previews out.
"""


@dataclass(frozen=True, slots=True)
class _Filter:
    """One select box: its name in the address, its label, and the values with their texts."""

    name: str
    label: str
    values: Mapping[str, str]


def rule_index(families: tuple[Family, ...]) -> str:
    """Make the page.

    Args:
        families: all of them, in the order of the page.

    Returns:
        Markdown, with the filters and the list in HTML.
    """
    family_by_rule = {rule: family for family in families for rule in family.rules}
    faults = group_rules_by_fault(family_by_rule)
    html = "\n".join(
        (
            *_filter_lines(families, faults),
            *(line for fault in faults for line in _fault_lines(fault, family_by_rule)),
            *_paging_lines(),
            '<script src="../_static/rule_index.js" defer></script>',
        )
    )
    introduction = INTRODUCTION.format(count=len(family_by_rule), faults=len(faults))
    return f"{introduction}\n```{{raw}} html\n{html}\n```\n"


def _filters(families: tuple[Family, ...], faults: tuple[FaultWithRules, ...]) -> Iterator[_Filter]:
    titles = {family.letters: f"{family.letters} {family.title}" for family in families}
    yield _Filter("family", "Family", titles)
    yield _Filter("fault", "Fault", {name: name for name in sorted(one.name for one in faults)})
    yield _Filter("severity", "Severity", {name: name for name in ("error", "warning", "info")})
    yield _Filter("stability", "Stability", {name: name for name in ("stable", "preview")})
    # Without the release and what follows it: a select box on a phone holds fifteen letters.
    trainers: dict[str, str] = {
        name: re.split(r" \d", facts.name_in_reports)[0] for name, facts in TRAINERS.items()
    }
    yield _Filter("trainer", "Trainer", trainers)


def _filter_lines(
    families: tuple[Family, ...], faults: tuple[FaultWithRules, ...]
) -> Iterator[str]:
    # Hidden until the script runs: without it no filter would do anything.
    yield '<form id="rule-filters" role="search" aria-label="Filter rules" hidden>'
    yield '<p class="words"><label for="rule-words">Words</label>'
    yield '<input id="rule-words" name="words" type="search" autocomplete="off"></p>'
    for one in _filters(families, faults):
        yield f'<p><label for="rule-{one.name}">{one.label}</label>'
        yield f'<select id="rule-{one.name}" name="{one.name}"><option value="">all</option>'
        for value, text in one.values.items():
            yield f'<option value="{escape(value)}">{escape(text)}</option>'
        yield "</select></p>"
    yield '<p class="reset"><button type="reset">Clear</button></p>'
    yield "</form>"
    yield '<p id="rule-count" role="status"></p>'


def _fault_lines(fault: FaultWithRules, family_by_rule: Mapping[AnyRule, Family]) -> Iterator[str]:
    # The id is the fragment by which the script chooses this fault, so that links to it work
    # without the script.
    yield f'<section class="rule-fault" id="fault={fault.name}">'
    yield f"<h2>{escape(fault.title)}</h2>"
    yield f'<p><code class="docutils literal">{fault.name}</code></p>'
    yield '<ul class="rule-list">'
    for rule in fault.rules:
        yield _rule_line(family_by_rule[rule], rule)
    yield "</ul></section>"


def _rule_line(family: Family, rule: AnyRule) -> str:
    name = escape(rule.name())
    data = {
        "family": family.letters,
        "fault": rule.fault_name(),
        "severity": rule.severity,
        "stability": rule.stability,
        **{f"by-{trainer}": severity for trainer, severity in _severities_by_trainer(rule)},
    }
    attributes = " ".join(f'data-{key}="{escape(value)}"' for key, value in data.items())
    # Pages of rules link to their family: without the script the link leads to its first rule.
    if rule is family.rules[0]:
        attributes += f' id="family={family.letters}"'
    code = f'<code class="docutils literal">{rule.code}</code>'
    return (
        f'<li {attributes}><p class="rule-head"><a href="{name}.html">{name}</a> {code}'
        f' <span class="rule-severity {rule.severity}">{rule.severity}</span>'
        f' <span class="rule-stability">{rule.stability}</span></p>'
        f"<p>{_as_html(summary_of_rule(rule))}</p></li>"
    )


def _severities_by_trainer(rule: AnyRule) -> Iterator[tuple[str, str]]:
    """The trainers under which a rule has another severity than its own."""
    for name, facts in TRAINERS.items():
        severity = severity_under_trainer(rule, facts)
        if severity != rule.severity:
            yield name, severity or NOT_APPLYING


def _paging_lines() -> Iterator[str]:
    yield '<nav id="rule-paging" aria-label="Pages of the list" hidden>'
    yield '<button type="button" id="rule-previous">Previous</button>'
    yield '<span id="rule-page"></span>'
    yield '<button type="button" id="rule-next">Next</button></nav>'


def _as_html(text: str) -> str:
    """A line of Markdown that has no other markup than `code`."""
    return re.sub(
        r"`([^`]*)`", r'<code class="docutils literal">\1</code>', escape(text, quote=False)
    )
