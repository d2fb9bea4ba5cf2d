"""The index of rules: all of them by family, with a search and filters that a script in the page
switches on.

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

from truetune.report.rule_pages.rule_page_for_readers import severity_under_trainer
from truetune.trainers import TRAINERS

NOT_APPLYING = "none"
"""Severity of a rule under a trainer of whose runs it says nothing"""
INTRODUCTION = """\
# Rules

{count} rules check a fine-tune, from the rows in a file to the answers of a server. Each has a code
that never changes. `truetune rules` lists them, and `truetune explain RULE` shows a page in the
terminal. *Severity* is the highest that a rule gives. A *stable* rule has a case in the
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
    count = sum(len(family.rules) for family in families)
    html = "\n".join(
        (
            *_filter_lines(families),
            *(line for family in families for line in _family_lines(family)),
            *_paging_lines(),
            '<script src="../_static/rule_index.js" defer></script>',
        )
    )
    return f"{INTRODUCTION.format(count=count)}\n```{{raw}} html\n{html}\n```\n"


def _filters(families: tuple[Family, ...]) -> Iterator[_Filter]:
    titles = {family.letters: f"{family.letters} {family.title}" for family in families}
    yield _Filter("family", "Family", titles)
    yield _Filter("severity", "Severity", {name: name for name in ("error", "warning", "info")})
    yield _Filter("stability", "Stability", {name: name for name in ("stable", "preview")})
    # Without the release and what follows it: a select box on a phone holds fifteen letters.
    trainers: dict[str, str] = {
        name: re.split(r" \d", facts.name_in_reports)[0] for name, facts in TRAINERS.items()
    }
    yield _Filter("trainer", "Trainer", trainers)


def _filter_lines(families: tuple[Family, ...]) -> Iterator[str]:
    # Hidden until the script runs: without it no filter would do anything.
    yield '<form id="rule-filters" role="search" aria-label="Filter rules" hidden>'
    yield '<p class="words"><label for="rule-words">Words</label>'
    yield '<input id="rule-words" name="words" type="search" autocomplete="off"></p>'
    for one in _filters(families):
        yield f'<p><label for="rule-{one.name}">{one.label}</label>'
        yield f'<select id="rule-{one.name}" name="{one.name}"><option value="">all</option>'
        for value, text in one.values.items():
            yield f'<option value="{escape(value)}">{escape(text)}</option>'
        yield "</select></p>"
    yield '<p class="reset"><button type="reset">Clear</button></p>'
    yield "</form>"
    yield '<p id="rule-count" role="status"></p>'


def _family_lines(family: Family) -> Iterator[str]:
    # The id is the fragment by which the script chooses this family, so that links to it work
    # without the script.
    yield f'<section class="rule-family" id="family={family.letters}">'
    yield f"<h2>{escape(family.title)}</h2>"
    yield f"<p>Found by {_as_html(family.found_by)}.</p>"
    yield '<ul class="rule-list">'
    for rule in family.rules:
        yield _rule_line(family, rule)
    yield "</ul></section>"


def _rule_line(family: Family, rule: AnyRule) -> str:
    name = escape(rule.name())
    data = {
        "family": family.letters,
        "severity": rule.severity,
        "stability": rule.stability,
        **{f"by-{trainer}": severity for trainer, severity in _severities_by_trainer(rule)},
    }
    attributes = " ".join(f'data-{key}="{escape(value)}"' for key, value in data.items())
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
