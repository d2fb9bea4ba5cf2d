"""Templates are untrusted: each of these ends in one TemplateError, soon and small."""

from __future__ import annotations

import time

import pytest

from truetune.errors import TemplateError
from truetune.render.template import Template

DOUBLING = (
    "{% set ns = namespace(s=%START%) %}{% for i in range(60) %}{% set ns.s = %STEP% %}{% endfor"
    " %}{{ ns.s }}"
)


def doubling(start: str, step: str) -> str:
    return DOUBLING.replace("%START%", start).replace("%STEP%", step)


ATTACKS = {
    "nested loops": (
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    ),
    "nested loops with output": (
        "{% for i in range(99999) %}{% for j in range(99999) %}xxxx{% endfor %}{% endfor %}"
    ),
    "giant range": "{{ range(10 ** 12) | list }}",
    "repeat": "{{ 'a' * 10000000000 }}",
    "repeat from the right": "{{ 10000000000 * 'a' }}",
    "repeat of a list": "{{ ([0] * 10000000000) | length }}",
    "doubling by ~": doubling("'aaaaaaaa'", "ns.s ~ ns.s"),
    "doubling by +": doubling("'aaaaaaaa'", "ns.s + ns.s"),
    "doubling of a list": doubling("[1]", "ns.s + ns.s"),
    "a nest that shares its parts": doubling("[1]", "[ns.s, ns.s]"),
    "squaring": doubling("10", "ns.s * ns.s"),
    "power": "{{ (10 ** 5000) ** 5000 }}",
    "center": "{{ 'a' | center(10000000000) }}",
    "center of a field": "{{ messages[0].content.center(10000000000) }}",
    "ljust": "{{ 'a'.ljust(10000000000) }}",
    "expandtabs": "{{ '\t\t'.expandtabs(10000000000) }}",
    "indent": "{{ 'a\nb' | indent(10000000000) }}",
    "format": "{{ '%10000000000d' | format(1) }}",
    "format by argument": "{{ '%*d' | format(10000000000, 1) }}",
    "format method": "{{ '{:>10000000000}'.format(1) }}",
    "format method, nested": "{{ '{:>{w}}'.format(1, w=10000000000) }}",
    "percent": "{{ '%*d' % (10000000000, 1) }}",
    "replace": "{% set s = 'a' * 1000000 %}{{ s.replace('a', s) }}",
    "replace filter": "{% set s = 'a' * 1000000 %}{{ s | replace(old='a', new=s) }}",
    "join": "{% set s = 'a' * 1000000 %}{{ s.join(range(100000) | map('string')) }}",
    "batch": "{{ [1] | batch(10000000000, 0) | list | length }}",
    "tojson": "{{ [1] | tojson(indent=10000000000) }}",
    "hoarding": (
        "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = ns.l + ['a' *"
        " 9000000 ~ i] %}{% endfor %}"
    ),
    "macro that calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "macro that forks": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"
    ),
    "loop that calls itself": (
        "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{{ loop([[1]]) }}{% endfor %}"
    ),
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "classes of a field": "{{ messages[0].content.__class__.__mro__ }}",
    "globals": "{{ cycler.__init__.__globals__ }}",
    "self": "{{ self.__init__.__globals__ }}",
    "namespace": "{% set ns = namespace(__class__=1) %}",
    "change the data": "{{ messages.append(1) }}",
    "bytes": "{{ (1).to_bytes(10000000000, 'big') }}",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_ends_in_one_error(name: str) -> None:
    started = time.monotonic()
    with pytest.raises(TemplateError) as caught:
        Template(ATTACKS[name]).render([{"role": "user", "content": "x"}])
    assert "\n" not in str(caught.value)
    assert time.monotonic() - started < 20, "the limit is 2 s on a machine that does nothing else"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.format.__globals__ }}",
        "{{ '' | attr('__class__') }}",
        "{{ '{0.__class__}'.format(messages) }}",
        (
            "{{ messages[0].content.trace }}{{ messages[0].content.plain }}{{"
            " messages[0].content.segments }}"
        ),
        "{{ strftime_now.__globals__ }}{{ raise_exception.__globals__ }}{{ namespace.func }}",
    ],
)
def test_shows_nothing_of_python(source: str) -> None:
    assert Template(source).render([{"role": "user", "content": "x"}]) == ""


def test_long_conversations_are_no_attack() -> None:
    source = (
        "{% set ns = namespace(n=0) %}"
        "{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ m.content }}{% endfor %}{{ ns.n }}"
    )
    messages = [{"role": "user", "content": "word " * 2000}] * 300
    assert str(Template(source).render(messages)).endswith("300")
