"""What a template asks of a field is noted, or the trace is opaque. One case for each way past an operator."""

from __future__ import annotations

import pytest

from truetune.render.template import Template
from truetune.render.traced_string import Trace, Traced

ROW = [{"role": "user", "content": "yes"}, {"role": "assistant", "content": "no"}]

OPAQUE = [
    "{{ 'x' if 'prefix yes'.startswith(messages[0].content) else 'y' }}",
    "{{ messages | selectattr('content', 'in', messages[0].content) | list | length }}",
    "{{ '%5s' % messages[0].content }}",
    "{{ '{}'.format(messages[0].content) }}",
    "{{ '{:d}'.format(messages[0].content | length) }}{{ messages[0].content.encode() }}",
    "{{ strftime_now(messages[0].content) }}",
    "{{ messages | map(attribute='content') | sort | first }}",
    "{{ messages | map(attribute='content') | unique | list | length }}",
    "{{ {messages[0].content: 1} }}",
    "{{ {'yes': 1}[messages[0].content] }}",
    "{{ {'yes': 1}.get(messages[0].content, 0) }}",
    "{{ messages | string }}",
    "{{ messages }}",
    "{% set ns = namespace(x=messages[0].content) %}{{ ns }}",
    "{{ messages[0].content | title }}",
    "{{ messages[0].content | int }}",
    "{{ messages[0].content | wordcount }}",
    "{{ messages[0].content | urlencode }}",
    "{{ messages[0].content is sameas 'yes' }}",
    "{{ messages[0].content == messages[1].content }}",
    "{{ messages[0] == messages[1] }}",
    "{{ (messages[0].content ~ 'x') in 'abc' }}",
    "{{ messages[0].content.translate({121: 'z'}) }}",
    "{% autoescape true %}{{ messages[0].content }}{% endautoescape %}",
    "{% for m in messages %}{{ loop.changed(m.content) }}{% endfor %}",
    "{% macro f() %}{{ messages[0].content }}{% endmacro %}{{ 'a' if (f() ~ '!') in 'yes no' }}",
    (
        "{{ messages[0].content.index('e') if true }}{{ messages[0].content | trim | length * 2 in"
        " [messages] }}"
    ),
    "{{ [1, 2, 3][messages[0].content | int] }}",
    "{{ messages | tojson | length }}",
]
TRANSPARENT = [
    "{{ messages[0].content }}",
    "{{ 'a' if messages[0].content in 'yes no' else 'b' }}",
    "{{ 'a' if messages[0].content not in ['yes', 'no'] else 'b' }}",
    "{{ 'a' if messages[0].content in {'yes': 1} else 'b' }}",
    "{{ 'a' if 'e' in messages[0].content else 'b' }}",
    "{{ messages | selectattr('content', 'in', ['yes']) | list | length }}",
    (
        "{{ messages | rejectattr('role', 'equalto', 'user') | map(attribute='content') | join(',"
        " ') }}"
    ),
    "{{ '%s: %s%%' % (messages[0].role, messages[0].content) }}",
    "{{ messages[0].content | trim | upper }}{{ messages[0] | tojson(indent=2) }}",
    "{{ messages[0].content.split('e')[0].strip() }}{{ messages[0].content[:-1] }}",
    (
        "{% for m in messages if m.content is string and m.content != '' %}{{ loop.index }}{{"
        " m.content }}{% endfor %}"
    ),
    (
        "{% set ns = namespace(x='') %}{% for m in messages %}{% set ns.x = m.content %}{% endfor"
        " %}{{ ns.x }}"
    ),
    "{% macro f(m) %}[{{ m.content }}]{% endmacro %}{% for m in messages %}{{ f(m) }}{% endfor %}",
    "{% set text %}{{ messages[0].content }}!{% endset %}{{ text | trim }}",
    "{{ messages[0].get('content', 'x') }}{{ messages[-1]['content'] }}",
    "{% generation %}{{ messages[1].content }}{% endgeneration %}{{ strftime_now('%Y') | length }}",
    (
        "{{ 1 < messages | length <= 5 }}{{ messages[0].content is defined }}{{ messages[0].content"
        " is sequence }}"
    ),
    "{% for key, value in messages[0] | dictsort %}{{ key }}={{ value }}{% endfor %}",
]


def trace_of(source: str) -> Trace:
    template, trace = Template(source), Trace()
    template.render_prefix(template.make_inputs(ROW, None, None), trace, len(ROW), False, {})
    return trace


@pytest.mark.parametrize("source", OPAQUE)
def test_what_is_not_traced_is_opaque(source: str) -> None:
    assert trace_of(source).opaque


@pytest.mark.parametrize("source", TRANSPARENT)
def test_what_published_templates_use_keeps_its_recipe(source: str) -> None:
    assert not trace_of(source).opaque


def test_a_question_from_the_other_side_is_noted() -> None:
    trace = trace_of("{{ 'a' if messages[0].content in 'yes no' else 'b' }}")
    assert {(question, args): answer for (_, question, args), answer in trace.answers.items()} == {
        ("is_part_of", ("yes no",)): True
    }


def test_text_that_lost_its_fields_is_of_unknown_origin() -> None:
    template = Template("<{{ messages | map(attribute='content') | sort | first | urlencode }}>")
    parts = template.render_prefix(
        template.make_inputs(ROW, None, None), Trace(), len(ROW), False, {}
    )
    assert "".join(parts) == "<no>"
    unknown = [part.plain for part in parts if isinstance(part, Traced)]
    assert unknown == ["no"]
