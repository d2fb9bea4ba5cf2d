"""Whatever a chat template asks of its fields, each row gets its own answers.

TRUETUNE_GRAMMAR_TEMPLATES says how many templates are generated (300 where it is not set).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest
from jinja2.filters import FILTERS
from jinja2.tests import TESTS

from tests.render import grammar
from tests.render.against_transformers import ROWS, compare, history_of, report

COUNT = int(os.environ.get("TRUETUNE_GRAMMAR_TEMPLATES", "300"))
BLOCK = 30
"""Templates in one test."""

CHAT = "{% for m in messages %}<|im_start|>{{ m.role }}\n@<|im_end|>\n{% endfor %}"
QUESTIONS = {
    "in a literal": "{{ m.content }}{% if m.content in 'yes no' %} (short){% endif %}",
    "not in a literal": "{{ m.content }}{% if m.content not in 'yes no' %} (long){% endif %}",
    "in a list": "{% if m.content in ['yes', 'no'] %}(short){% endif %}",
    "in a dict": "{% if m.content in {'yes': 1} %}(short){% endif %}",
    "is in": "{% if m.content is in 'yes no' %}(short){% endif %}",
    "not is in": "{% if m.content is not in 'yes no' %}(long){% endif %}",
    "select in": "{{ [m.content, 'b']|select('in', 'yes no')|list|length }}",
    "reject in": "{{ [m.content, 'b']|reject('in', 'yes no')|join(',') }}",
    "selectattr in": "{{ messages|selectattr('content', 'in', 'yes no')|list|length }}",
    "rejectattr in": (
        "{{ messages|rejectattr('content', 'in', ['a', ''])|map(attribute='role')|join }}"
    ),
    "rejectattr in a literal": "{{ messages|rejectattr('content', 'in', 'yes no')|list|length }}",
    "select in fields": "{{ ['yes', 'a']|select('in', [m.content])|list|length }}",
    "percent with a tuple": "{{ '%s: %s' % (m.role, m.content) }}",
    "percent with a dict": "{{ '%(text)s' % {'text': m.content} }}",
    "percent with a list": "{{ '%s' % [m.content] }}",
    "percent with a field as the format": "{{ m.content % () }}",
    "bytes": "{{ m.content.encode() }}",
    "length of bytes": "{{ m.content.encode()|length }}",
    "bytes compared": "{% if m.content.encode() == 'yes'.encode() %}(short){% endif %}",
    "a clock's format": "{{ strftime_now(m.content) }}",
    "a clock's format made of a field": "{{ strftime_now('%Y ' ~ m.content) }}",
    "concatenated in a literal": "{% if ('x' ~ m.content) in 'xyes xno' %}(short){% endif %}",
    "added in a literal": "{% if ('x' + m.content) in 'xyes xno' %}(short){% endif %}",
    "a macro in a literal": (
        "{% macro f(t) %}{{ t }}{% endmacro %}{% if f(m.content) in 'yes no' %}(short){% endif %}"
    ),
    "a set block in a literal": (
        "{% set t %}{{ m.content }}{% endset %}{% if t in 'yes no' %}(short){% endif %}"
    ),
    "a literal's method": "{% if 'yes no'.startswith(m.content) %}(short){% endif %}",
    "a literal's count": "{{ 'yes no'.count(m.content) }}",
    "a literal's split": "{{ 'a,b yes'.split(m.content or ',')|length }}",
    "a key": "{{ {'yes': 'Y', 'no': 'N'}[m.content] }}",
    "a key with a default": "{{ {'yes': 'Y', 'no': 'N'}.get(m.content, '?') }}",
    "lists compared": "{% if [m.content] == ['yes'] %}(short){% endif %}",
    "tuples ordered": "{% if (m.content, 1) < ('b', 2) %}(first){% endif %}",
    "a chain of comparisons": "{% if 'a' < m.content <= 'yes' %}(between){% endif %}",
    "the greatest": "{{ [m.content, 'b']|max }}",
    "a sorted list": "{{ [m.content, 'b']|sort|first }}",
    "unique": "{{ [m.content, 'yes', 'no']|unique|list|length }}",
    "groups": "{{ messages|groupby('content')|length }}",
    "a number": "{{ m.content|int + 1 }}",
    "a number as an index": "{{ 'abc'[m.content|int(2)] }}",
    "a number as a range": "{% for i in range(m.content|int % 4) %}.{% endfor %}",
    "replaced and mapped": "{{ m.content|replace('yes', 'no')|upper }}",
    "escaped": "{{ m.content|e }}{{ ('<'|safe) + m.content }}",
    "an escaped literal beside a field": "{{ '<b>'|e }}{{ m.content }}",
    "a test of two fields": "{% if m.content in messages[0].content %}(repeated){% endif %}",
    "an index in a list of fields": (
        "{{ (messages|map(attribute='content')|list).index(m.content) }}"
    ),
    "a changed value": "{% if loop.changed(m.content) %}(new){% endif %}",
    "a recursive loop": (
        "{% for c in m.content recursive %}{{ c }}{{ loop('b') if c in 'yes' and loop.depth < 2 }}"
        "{% endfor %}"
    ),
}
"""Beside what the grammar finds: each by itself, as people would write it."""


@pytest.mark.parametrize("first", range(0, COUNT, BLOCK))
def test_generated_templates_render_as_transformers_does(
    first: int, record_property: Callable[[str, object], None]
) -> None:
    reports = [report(seed) for seed in range(first, min(first + BLOCK, COUNT))]
    outcomes = [made.outcome for made in reports]
    rendered = sum(outcome.rendered for outcome in outcomes)
    refused = sum(outcome.refused for outcome in outcomes)
    filled = sum(outcome.filled for outcome in outcomes)
    record_property("rows", {"rendered": rendered, "refused": refused, "filled": filled})
    assert not any(outcome.differences for outcome in outcomes), "\n\n".join(
        str(made) for made in reports if made.outcome.differences
    )
    assert rendered > len(reports) * ROWS / 2, (
        "most templates must render, else nothing is compared"
    )
    assert refused < rendered / 5, "what truetune refuses must stay the exception"
    assert filled > 0, "recipes must be used, else nothing is proved of them"


@pytest.mark.parametrize(("seed", "name"), enumerate(QUESTIONS))
def test_a_question_is_answered_for_each_row(seed: int, name: str) -> None:
    source = CHAT.replace("@", QUESTIONS[name])
    outcome = compare(source, grammar.rows(seed, ROWS), history_of(seed))
    assert not outcome.differences, outcome.differences[0]
    assert outcome.rendered


def test_a_seed_makes_the_same_template_and_rows_again() -> None:
    assert grammar.template(7).text == grammar.template(7).text
    assert grammar.rows(7, 5) == grammar.rows(7, 5)
    assert len({grammar.template(seed).text for seed in range(50)}) == 50


def test_the_grammar_holds_all_of_jinja() -> None:
    """So that what a new release of Jinja adds is tried as well."""
    patterns = " ".join(
        pattern
        for rules in (grammar.LEAVES, grammar.BRANCHES)
        for some in rules.values()
        for _, pattern in some
    )
    words = set(re.findall(r"\w+|[<>=!]+", patterns))
    assert {*FILTERS} <= words
    assert {*TESTS} <= words
    methods = {name for name in dir(str) if not name.startswith("_")}
    assert methods <= words


def test_shrinking_leaves_what_differs() -> None:
    tree, rows = next(
        (tree, grammar.rows(seed, ROWS))
        for seed in range(500)
        if "|title" in (tree := grammar.template(seed)).text
    )
    smallest, few = grammar.shrink(
        tree, rows, lambda source, some: "|title" in source and len(some) > 1
    )
    assert "|title" in smallest.text
    assert len(smallest.text) < len(tree.text)
    assert len(few) == 2
