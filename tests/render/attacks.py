"""Chat templates that attack: memory, processor time, depth, and what lies behind the sandbox.

By family, each under a name of its own. Every one must end in a text or in one TemplateError, within the limits of one
rendering; those of ESCAPES must also show nothing of Python.
"""

from __future__ import annotations

CHAT = [
    {"role": "user", "content": "Is it <so>, yes?\n42"},
    {"role": "assistant", "content": "a b" * 300},
]


def repeated(start: str, step: str, times: int = 60, end: str = "{{ ns.s|length }}") -> str:
    """A value in ns.s that is made from itself again and again."""
    # The sandbox takes ranges of 100,000 at most.
    loop = f"{{% for i in range({min(times, 100_000)}) %}}{{% set ns.s = {step} %}}{{% endfor %}}"
    loop *= max(1, times // 100_000)
    return f"{{% set ns = namespace(s={start}) %}}{loop}{end}"


def nested(count: int, opening: str, inside: str, closing: str) -> str:
    return opening * count + inside + closing * count


def shared(use: str, times: int = 40) -> str:
    """A list of 2 ** times entries that share their parts, twice, and what is done with them."""
    return (
        f"{{% set ns = namespace(s=[1], t=[1]) %}}{{% for i in range({times}) %}}{{% set ns.s ="
        f" [ns.s, ns.s] %}}{{% set ns.t = [ns.t, ns.t] %}}{{% endfor %}}{{{{ {use} }}}}"
    )


def deep(use: str, times: int = 100_000, step: str = "[ns.s]") -> str:
    """A list inside a list, and so on."""
    return repeated("[1]", step, times, f"{{{{ {use} }}}}")


def loops(count: int, values: str, inside: str = "x") -> str:
    opening = "".join(f"{{% for i{n} in {values} %}}" for n in range(count))
    return opening + inside + "{% endfor %}" * count


WIDTHS = {
    "format method": "{{ '{:>1000000000}'.format(1) }}",
    "format method, zeros": "{{ '{:01000000000}'.format(1) }}",
    "format method, width as an argument": "{{ '{:>{w}}'.format(1, w=1000000000) }}",
    "format method, width of a width": "{{ '{:{}{}}'.format(1, '>', 1000000000) }}",
    "format method, precision": "{{ '{:.1000000000f}'.format(1.5) }}",
    "format method, precision with commas": "{{ '{:,.100000000e}'.format(1.5) }}",
    "format method, digits of another script": "{{ '{:>٩٩٩٩٩٩٩٩٩}'.format(1) }}",
    "format method, conversion": "{{ '{x!r:>1000000000}'.format(x=messages[0].content) }}",
    "format method, many small widths": "{{ ('{0:>99999}' * 9999).format(1) }}",
    "format method, widths below the limit": "{{ ('{0:>9999999}' * 400).format(1) }}",
    "format method of a field": "{{ (messages[0].content ~ '{:>1000000000}').format(1) }}",
    "format method, by attr": "{{ ('{:>1000000000}'|attr('format'))(1) }}",
    "format_map": "{{ '{a:>1000000000}'.format_map({'a': 1}) }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent, to the left": "{{ '%-1000000000s' % 'a' }}",
    "percent, precision": "{{ '%.1000000000f' % 1.5 }}",
    "percent, precision of an integer": "{{ '%.1000000000d' % 1 }}",
    "percent, width as an argument": "{{ '%*d' % (1000000000, 1) }}",
    "percent, precision as an argument": "{{ '%.*f' % (1000000000, 1.5) }}",
    "percent with a dict": "{{ '%(a)1000000000d' % {'a': 1} }}",
    "percent, a width that is made": "{{ ('%' ~ 1000000000 ~ 'd') % 1 }}",
    "percent, many small widths": "{{ ('%99999d' * 9999) % ((1,) * 9999) }}",
    "percent of bytes": "{{ '%1000000000d'.encode() % 1 }}",
    "percent of safe text": "{{ ('%1000000000d'|safe) % 1 }}",
    "format filter": "{{ '%1000000000d'|format(1) }}",
    "format filter, width as an argument": "{{ '%*d'|format(1000000000, 1) }}",
    "format filter, by name": "{{ '%(a)1000000000d'|format(a=1) }}",
    "format filter, mapped": "{{ ['%1000000000d']|map('format', 1)|list|length }}",
    "center": "{{ 'a'|center(1000000000) }}",
    "center, by name": "{{ 'a'|center(width=1000000000) }}",
    "center, mapped": "{{ ['a']|map('center', 1000000000)|join }}",
    "center method": "{{ messages[0].content.center(1000000000) }}",
    "ljust": "{{ 'a'.ljust(1000000000, 'é') }}",
    "rjust of a field": "{{ messages[1].content.rjust(1000000000) }}",
    "zfill": "{{ 'a'.zfill(1000000000) }}",
    "ljust of bytes": "{{ 'a'.encode().ljust(1000000000) }}",
    "center of safe text": "{{ ('a'|safe).center(1000000000) }}",
    "expandtabs": "{{ ('\t' * 9).expandtabs(1000000000) }}",
    "expandtabs, by name": "{{ ('\t' * 9).expandtabs(tabsize=1000000000) }}",
    "expandtabs of bytes": "{{ '\t'.encode().expandtabs(1000000000) }}",
    "indent": "{{ 'a\nb'|indent(1000000000) }}",
    "indent, by name": "{{ 'a\nb'|indent(width=1000000000) }}",
    "indent by a long text": "{{ ('a\n' * 99999)|indent('x' * 99999) }}",
    "indent of many lines": "{{ ('a\n' * 999999)|indent(9999) }}",
    "tojson": "{{ [1]|tojson(indent=1000000000) }}",
    "tojson with a long text": "{{ ([1] * 99999)|tojson(indent='x' * 99999) }}",
    "tojson with long separators": "{{ ([1] * 99999)|tojson(separators=('x' * 99999, ':')) }}",
    "tojson, an indent for each depth": "{{ [[[[[1] * 99] * 99] * 9] * 9]|tojson(indent=99999) }}",
    "truncate": "{{ ('a' * 999)|truncate(9, true, 'x' * 1000000000) }}",
    "batch": "{{ [1]|batch(1000000000, 0)|list|length }}",
    "batch, by name": "{{ [1]|batch(linecount=1000000000, fill_with=0)|list|length }}",
    "slice": "{{ [1]|slice(1000000000)|list|length }}",
    "slice with a fill": "{{ [1]|slice(slices=1000000000, fill_with=0)|list|length }}",
    "round": "{{ 1.5|round(1000000000) }}{{ 1|round(-1000000000, 'ceil') }}",
    "wordwrap": "{{ ('a' * 99999)|wordwrap(1, wrapstring='x' * 99999) }}",
    "a clock's width": "{{ strftime_now('%1000000000Y') }}",
    "a clock's long format": "{{ strftime_now('%c' * 999999) }}",
    "numbers with a width": "{{ (1).to_bytes(1000000000, 'big') }}",
}

REPEATS = {
    "text": "{{ 'a' * 1000000000000 }}",
    "text, from the right": "{{ 10000000000 * 'a' }}",
    "a field": "{{ messages[0].content * 10000000000 }}",
    "a list": "{{ ([0] * 10000000000)|length }}",
    "a tuple": "{{ ((0,) * 10000000000)|length }}",
    "bytes": "{{ ('a'.encode() * 10000000000)|length }}",
    "safe text": "{{ ('a'|safe) * 10000000000 }}",
    "half a gigabyte, twice": "{{ ('a' * 268435455) ~ ('b' * 268435455) }}",
    "a fraction of a field's length": "{{ 'a' * (messages[1].content|length ** 4) }}",
    "negative repeats before a large one": (
        "{% for i in range(999) %}{% set x = 'ab' * -999999999 %}{% endfor %}{% set s = 'a' *"
        " 16000000 %}{{ s ~ s ~ s ~ s ~ s ~ s ~ s ~ s ~ s ~ s ~ s ~ s ~ s ~ s ~ s ~ s ~ s ~ s }}"
    ),
    "negative widths before a large one": (
        "{% for i in range(999) %}{% set x = 'ab'.center(-999999999) %}{% endfor %}"
        + repeated("'a' * 9999999", "ns.s ~ ns.s", 9)
    ),
    "doubling by ~": repeated("'a'", "ns.s ~ ns.s"),
    "doubling by +": repeated("'a'", "ns.s + ns.s"),
    "doubling of a list": repeated("[1]", "ns.s + ns.s"),
    "doubling of a tuple": repeated("(1,)", "ns.s + ns.s"),
    "doubling of bytes": repeated("'a'.encode()", "ns.s + ns.s"),
    "doubling by the format method": repeated("'a'", "'{0}{0}'.format(ns.s)"),
    "doubling by the format filter": repeated("'a'", "'%s%s'|format(ns.s, ns.s)"),
    "doubling by percent": repeated("'a'", "'%s%s' % (ns.s, ns.s)"),
    "doubling by join": repeated("'a'", "ns.s.join(['', '', ''])"),
    "doubling by the join filter": repeated("'a'", "[ns.s, ns.s]|join"),
    "doubling by join of its characters": repeated("'a' * 99", "ns.s.join(ns.s)"),
    "doubling by replace": repeated("'a'", "ns.s.replace('a', 'aa')"),
    "doubling by the replace filter": repeated("'a'", "ns.s|replace('a', 'aa')"),
    "doubling by the empty replaced": repeated("'a'", "ns.s.replace('', 'a')"),
    "doubling by tojson": repeated("'\"'", "ns.s|tojson"),
    "doubling by repr": repeated("['\\\\']", "[ns.s|string]"),
    "doubling by escapes": repeated("'&'", "ns.s|e|string|replace('amp;', '&&')"),
    "doubling by forced escapes": repeated("'&&&&'", "(ns.s|forceescape|string) ~ ns.s"),
    "doubling by urlencode": repeated("'%'", "ns.s|urlencode|replace('2', '%')|replace('5', '%')"),
    "doubling by capitals": repeated("'ﬃ'", "(ns.s|upper|replace('F', 'ﬃ')|replace('I', 'ﬃ'))"),
    "doubling by translate": repeated("'a'", "ns.s.translate({97: 'aa'})"),
    "doubling by list": repeated("'a'", "ns.s|list|string"),
    "doubling by a set block": (
        "{% set s = 'a' %}{% for i in range(60) %}{% endfor %}"
        + "{% set s %}{{ s }}{{ s }}{% endset %}" * 60
        + "{{ s|length }}"
    ),
    "doubling by set": "{% set s = 'a' %}" + "{% set s = s ~ s %}" * 60 + "{{ s|length }}",
    "doubling by macros": (
        "{% macro f(s, n) %}{{ f(s ~ s, n - 1) if n else s|length }}{% endmacro %}{{ f('a', 60) }}"
    ),
    "doubling by filter blocks": (
        "{% filter replace('a', 'aa') %}" * 40 + "a" + "{% endfilter %}" * 40
    ),
    "doubling by sum": repeated("[1]", "[ns.s, ns.s]|sum(start=[])"),
    "doubling by a repeat of two": repeated("'a'", "ns.s * 2"),
    "growth of a list of fields": repeated("[messages[1].content]", "ns.s + ns.s"),
    "growth of a text of fields": repeated("messages[1].content", "ns.s ~ ns.s"),
    "hoarding": (
        "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}"
        "{% set ns.l = ns.l + ['a' * 9000000 ~ i] %}{% endfor %}"
    ),
    "hoarding in set blocks": (
        "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}"
        "{% set b %}{{ 'é' * 1000000 }}{{ i }}{% endset %}{% set ns.l = ns.l + [b] %}{% endfor %}"
    ),
    "hoarding in namespaces": (
        "{% set ns = namespace() %}{% for i in (range(99999)|list * 90) %}"
        "{% set ns = namespace(a=ns) %}{% endfor %}"
    ),
    "hoarding of small lists": (
        "{% set ns = namespace(l=none) %}{% for i in (range(99999)|list * 90) %}"
        "{% set ns.l = [ns.l, i] %}{% endfor %}"
    ),
    "much output": "{% set s = 'a' * 9999999 %}{% for i in range(9999) %}{{ s }}{% endfor %}",
    "replace of many by much": "{% set s = 'a' * 999999 %}{{ s.replace('a', s) }}",
    "the replace filter, by name": "{% set s = 'a' * 999999 %}{{ s|replace(old='a', new=s) }}",
    "replace in bytes": (
        "{% set s = ('a' * 999999).encode() %}{{ s.replace('a'.encode(), s)|length }}"
    ),
    "join of many by much": "{{ ('a' * 999999).join(range(99999)|map('string')) }}",
    "the join filter with much": "{{ range(99999)|join('a' * 999999) }}",
    "join of bytes": "{% set s = ('a' * 999999).encode() %}{{ s.join([s] * 9999)|length }}",
    "a giant literal": "{{ '" + "a" * 2_000_000 + "'|length }}",
    "giant text": "a" * 4_000_000,
}

NUMBERS = {
    "a power": "{{ 9 ** 9 ** 9 }}",
    "a power of a power": "{{ (10 ** 5000) ** 5000 }}",
    "a power compared": "{{ 9 ** 9 ** 8 > 1 }}",
    "a power's remainder": "{{ (7 ** 7 ** 8) % 7 }}",
    "a power by a field": "{{ 9 ** (messages[1].content|length ** 3) > 1 }}",
    "a large power many times": "{% for i in range(9999) %}{% set x = 99999 ** 9999 %}{% endfor %}",
    "a negative power": "{{ 2.0 ** -(9 ** 9 ** 9) }}",
    "squaring": repeated("10", "ns.s * ns.s", end="{{ ns.s > 1 }}"),
    "squaring by a filter": repeated("[10]", "[ns.s|first * ns.s|last]", end="{{ ns.s|sum > 1 }}"),
    "factorial": (
        "{% set ns = namespace(s=1) %}{% for i in range(1, 99999) %}{% set ns.s = ns.s * i %}"
        "{% endfor %}{{ ns.s > 1 }}"
    ),
    "many digits": "{{ (2 ** 300000)|string|length }}",
    "many digits of text": "{{ ('9' * 9999999)|int }}",
    "many digits, another base": "{{ ('f' * 9999999)|int(base=16) > 1 }}",
    "a literal of many digits": "{{ " + "9" * 1_000_000 + " }}",
    "a float of many digits": "{{ " + "9" * 1_000_000 + ".5 }}{{ 1e999999999 }}",
    "a range of a huge number": "{{ range(10 ** 5000)|length }}",
    "division of huge numbers": repeated(
        "10 ** 9999", "ns.s * ns.s // (ns.s - 1) * ns.s", end="{{ ns.s > 1 }}"
    ),
    "a fraction": "{{ (10 ** 5000) / 3 }}",
    "an infinite round": "{{ ('inf'|float)|round }}{{ ('nan'|float)|int }}",
    "a file's size": "{{ (10 ** 4000)|filesizeformat }}",
}

COMPARED = {
    "shared, equal": shared("ns.s == ns.t"),
    "shared, not equal": shared("ns.s != ns.t"),
    "shared, ordered": shared("ns.s < ns.t"),
    "shared, in": shared("ns.s in [ns.t]"),
    "shared, in a tuple of fields": shared("(ns.s, messages[0]) in ((ns.t, messages[1]), 1)"),
    "shared, index": shared("[1, ns.s].index(ns.t)"),
    "shared, count": shared("[1, ns.s].count(ns.t)"),
    "shared, the greatest": shared("[ns.s, ns.t]|max|length"),
    "shared, sorted": shared("[ns.s, ns.t]|sort|length"),
    "shared, unique": shared("[ns.s, ns.t]|unique|list|length"),
    "shared, groups": shared("[{'a': ns.s}, {'a': ns.t}]|groupby('a')|length"),
    "shared, selected": shared("[ns.s]|select('equalto', ns.t)|list|length"),
    "shared, rejected by in": shared("[ns.s]|reject('in', [ns.t])|list|length"),
    "shared, sorted dict": shared("{1: ns.s, 2: ns.t}|dictsort(by='value')|length"),
    "shared, a test": shared("ns.s is eq ns.t"),
    "shared, changed": (
        "{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(40) %}{% set ns.s = [ns.s, ns.s]"
        " %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{% for x in [1, 2] %}{{ loop.changed(ns.s if"
        " loop.first else ns.t) }}{% endfor %}"
    ),
    "shared, printed": shared("ns.s"),
    "shared, text": shared("ns.s|string|length"),
    "shared, joined": shared("[ns.s]|join|length"),
    "shared, ~": shared("(ns.s ~ 'a')|length"),
    "shared, percent": shared("('%s' % [ns.s])|length"),
    "shared, the format method": shared("'{}'.format(ns.s)|length"),
    "shared, tojson": shared("ns.s|tojson|length"),
    "shared, an error": shared("raise_exception(ns.s)"),
    "shared, an undefined key": shared("{}[ns.s].a"),
    "shared, given to a macro": "{% macro f(a) %}{{ a }}{% endmacro %}" + shared("f(ns.s)"),
    "shared, dicts": repeated("{}", "{'a': ns.s, 'b': ns.s}", end="{{ ns.s|tojson|length }}"),
    "shared, tuples as keys": repeated("(1,)", "(ns.s, ns.s)", end="{{ {ns.s: 1}|length }}"),
    "shared, tuples": repeated("(1,)", "(ns.s, ns.s)", end="{{ ns.s|string|length }}"),
    "long lists, equal": (
        "{% set a = [0] * 9999999 %}{% for i in range(9999) %}{% set x = a == a[:] %}{% endfor %}"
    ),
    "long lists, in": (
        "{% set a = (range(99999)|list * 90)|list %}{% for i in range(99999) %}"
        "{% set x = -1 in a %}{% endfor %}"
    ),
    "long lists, index": (
        "{% set a = [0] * 9999999 %}{% for i in range(9999) %}{% set x = a.count(1) %}{% endfor %}"
    ),
    "long texts, count": (
        "{% set a = 'a' * 9999999 %}{% for i in range(9999) %}{% set x = a.count('aab') %}"
        "{% endfor %}"
    ),
    "long texts, find": "{% set a = 'a' * 9999999 %}{{ a.find('a' * 99999 ~ 'b' ~ 'a' * 99999) }}",
    "long texts, strip": "{{ ('a' * 9999999).strip('b' * 9999999 ~ 'a')|length }}",
    "long texts, split": (
        "{% set a = 'a ' * 4999999 %}{% for i in range(999) %}{% set x = a.split() %}{% endfor %}"
    ),
    "long texts, lines": "{{ ('\n' * 16000000).splitlines()|length }}",
    "long texts, characters": "{{ ('é' * 16000000)|list|length }}",
    "long texts, sorted": "{{ ('ba' * 8000000)|sort|length }}",
    "long texts, tags": "{{ ('<' * 999999)|striptags }}",
    "long texts, links": "{{ ('(http://a.' * 99999)|urlize }}",
    "long texts, titles": (
        "{% set a = 'ab ' * 3999999 %}{% for i in range(999) %}{% set x = a|title|wordcount %}"
        "{% endfor %}"
    ),
    "attributes, sorted": "{{ [[1]]|sort(attribute='" + "0." * 999_999 + "0') }}",
    "attributes, mapped": (
        "{{ messages|map(attribute='" + "content." * 99_999 + "0')|list|length }}"
    ),
    "attributes, groups": "{{ [[1]]|groupby('" + "0." * 999_999 + "0') }}",
    "attributes, made": "{{ ([[[[1]]]] * 9999)|map(attribute='0.' * 999999 ~ '0')|list|length }}",
    "attributes, sum": "{{ [[1]]|sum(attribute='0.' * 7999999 ~ '0') }}",
    "attributes, many sorts": "{{ messages|sort(attribute='content,' * 999999 ~ 'content') }}",
    "attributes, unique": "{{ [[1]]|unique(attribute='0.' * 7999999 ~ '0')|list }}",
    "attributes, joined": "{{ messages|join(attribute='content.' * 999999 ~ 'a') }}",
    "attributes, selected": "{{ messages|selectattr('content.' * 999999 ~ 'a')|list }}",
}

DEPTH = {
    "3,000 parentheses": "{{ " + nested(3000, "(", "1", ")") + " }}",
    "100 parentheses": "{{ " + nested(100, "(", "1", ")") + " }}",
    "30,000 parentheses": "{{ " + nested(30_000, "(", "1", ")") + " }}",
    "lists": "{{ " + nested(3000, "[", "1", "]") + " }}",
    "dicts": "{{ " + nested(3000, "{1: ", "1", "}") + " }}",
    "minus": "{{ " + "- " * 5000 + "1 }}",
    "plus signs": "{{ " + "+ " * 90 + "1 }}",
    "not": "{{ " + "not " * 5000 + "1 }}",
    "a sum": "{{ 1" + " + 1" * 20_000 + " }}",
    "a product of fields": "{{ messages" + " + messages" * 5000 + " }}",
    "powers": "{{ 1" + " ** 1" * 5000 + " }}",
    "concatenation": "{{ 'a'" + " ~ 'a'" * 50_000 + " }}",
    "and": "{{ true" + " and messages" * 20_000 + " }}",
    "or": "{{ false" + " or x" * 20_000 + " }}",
    "comparisons": "{{ 1" + " < 2" * 50_000 + " }}",
    "conditions": "{{ " + "1 if x else " * 5000 + "2 }}",
    "filters": "{{ messages" + "|list" * 5000 + " }}",
    "filters on a literal": "{{ 'a'" + "|upper" * 5000 + " }}",
    "tests": "{{ 1" + " is defined is true" * 2500 + " }}",
    "attributes": "{{ messages" + ".a" * 20_000 + " }}",
    "subscripts": "{{ messages" + "[0]" * 20_000 + " }}",
    "slices": "{{ messages" + "[:]" * 5000 + " }}",
    "calls": "{{ range" + "()" * 5000 + " }}",
    "calls in calls": "{{ " + nested(3000, "range(", "1", ")") + " }}",
    "60 loops": loops(60, "[1]"),
    "19 loops": loops(19, "[1, 2, 3, 4]"),
    "300 loops": loops(300, "[1]"),
    "3,000 conditions": nested(3000, "{% if 1 %}", "x", "{% endif %}"),
    "90 conditions": nested(90, "{% if messages %}", "x", "{% endif %}"),
    "5,000 elifs": "{% if x %}" + "{% elif x %}" * 5000 + "{% endif %}",
    "macros in macros": (
        "".join(f"{{% macro f{n}() %}}" for n in range(300)) + "{% endmacro %}" * 300
    ),
    "set blocks": nested(1000, "{% set x %}", "x", "{% endset %}"),
    "filter blocks": nested(1000, "{% filter upper %}", "x", "{% endfilter %}"),
    "with": nested(1000, "{% with a = 1 %}", "x", "{% endwith %}"),
    "call blocks": (
        "{% macro f() %}{{ caller() }}{% endmacro %}"
        + nested(300, "{% call f() %}", "x", "{% endcall %}")
    ),
    "generation blocks": nested(300, "{% generation %}", "x", "{% endgeneration %}"),
    "blocks": "".join(f"{{% block b{n} %}}" for n in range(300)) + "{% endblock %}" * 300,
    "autoescape": nested(1000, "{% autoescape true %}", "x", "{% endautoescape %}"),
    "an unpacked target": "{% for " + nested(3000, "(", "a,", ")") + " in messages %}{% endfor %}",
    "a megabyte of outputs": "{{ messages[0].content }}" * 45_000,
    "a megabyte of assignments": "".join(f"{{% set v{n} = {n} %}}" for n in range(50_000)),
    "a megabyte of conditions": "{% if messages %}a{% endif %}" * 38_000,
    "a list of a million": "{{ [" + "1," * 1_000_000 + "]|length }}",
    "a dict of 200,000": "{{ {" + "".join(f"{n}: 1," for n in range(200_000)) + "}|length }}",
    "a long name": "{{ " + "a" * 1_000_000 + " }}",
    "a long filter's name": "{{ 1|" + "a" * 1_000_000 + " }}",
    "a long comment": "{#" + " a" * 1_000_000 + "#}",
    "an open comment": "{#" + " a" * 1_000_000,
    "long raw text": "{% raw %}" + "{{ " * 500_000 + "{% endraw %}",
    "braces": "{" * 1_000_000,
    "open outputs": "{{ " * 300_000,
    "open quotes": "{{ '" + "\\'" * 1_000_000,
    "blanks before tags": (" " * 99_999 + "{{ 1 }}") * 20,
    "blanks before no tag": (" " * 99_999 + "\n{") * 50,
    "dashes": "{{ 1 " + "-" * 200_000 + " }}",
    "underscores in a number": "{{ 1" + "_1" * 1_000_000 + " }}",
    "300 arguments": (
        "{% macro f(" + ", ".join(f"a{n}" for n in range(3000)) + ") %}{% endmacro %}{{ f() }}"
    ),
    "many arguments": "{{ range(" + "1," * 300_000 + ") }}",
    "deep, printed": deep("ns.s"),
    "deep, tojson": deep("ns.s|tojson|length"),
    "deep, compared": repeated(
        "[1]",
        "[ns.s]",
        99_999,
        "{% set a = ns.s %}" + repeated("[1]", "[ns.s]", 99_999, "{{ a == ns.s }}"),
    ),
    "deep, in": deep("ns.s in [[[1]]]"),
    "deep, hashed": deep("{ns.s: 1}", step="(ns.s,)"),
    "deep, percent": deep("'%s' % [ns.s]"),
    "deep, dicts": deep("ns.s|tojson", step="{'a': ns.s}"),
    "deep, dropped": deep("1", times=400_000),
    "deep, given to a macro": "{% macro f(a) %}x{% endmacro %}" + deep("f(ns.s)"),
    "deep, sorted": deep("[ns.s, ns.s]|sort|length"),
    "deep iterators, map": repeated("['a']", "ns.s|map('upper')", 99_999, "{{ ns.s|list }}"),
    "deep iterators, select": repeated("['a']", "ns.s|select", 99_999, "{{ ns.s|first }}"),
    "deep iterators, batch": repeated("['a']", "ns.s|batch(2)", 99_999, "{{ ns.s|list }}"),
    "deep iterators, unique": repeated("['a']", "ns.s|unique", 99_999, "{{ 'b' in ns.s }}"),
    "deep iterators, never read": repeated("['a']", "ns.s|map('upper')", 400_000, "x"),
    "deep functions": (
        "{% macro f(n) %}{% call g(n) %}{{ n }}{% endcall %}{% endmacro %}"
        "{% macro g(n) %}{{ f(n + 1) }}{{ caller() }}{% endmacro %}{{ f(0) }}"
    ),
}

LOOPS = {
    "two loops": loops(2, "range(99999)", ""),
    "two loops with output": loops(2, "range(99999)", "xxxx"),
    "six loops": loops(6, "range(9999)", ""),
    "a loop over text": (
        "{% set s = 'a' * 9999999 %}{% for a in s %}{% for b in s %}{% endfor %}{% endfor %}"
    ),
    "a loop over a field's letters": loops(7, "messages[1].content", ""),
    "a loop with a condition": "{% for i in range(99999) if range(99999)|sum < 0 %}{% endfor %}",
    "a loop that knows its end": (
        "{% for i in (range(99999)|list * 90)|map('string') %}{{ loop.last }}{% break %}"
        "{% endfor %}"
    ),
    "a loop that knows its length": (
        "{% for i in (range(99999)|list * 90)|select %}{{ loop.length }}{% break %}{% endfor %}"
    ),
    "loops with break": (
        "{% for i in range(99999) %}{% for j in range(99999) %}{% if j > 9999 %}{% break %}{% endif"
        " %}{% endfor %}{% endfor %}"
    ),
    "a list of a range": "{{ (range(99999)|list * 90)|list|length }}",
    "a sum of a range": "{{ (range(99999)|list * 90)|sum }}",
    "the greatest of a range": "{{ (range(99999)|list * 90)|max }}",
    "a range, joined": "{{ (range(99999)|list * 90)|join }}",
    "a range, joined by a method": "{{ ''.join((range(99999)|list * 90)|map('string')) }}",
    "a range, in": "{{ -1 in (range(99999)|list * 90)|map('int') }}",
    "a range, is in": "{{ 0.5 is in (range(99999)|list * 90) }}",
    "a range, not in": "{{ 'a' not in (range(99999)|list * 90) }}",
    "a range, counted": "{{ (range(99999)|list * 90).count(0.5) }}",
    "a range, selected": "{{ (range(99999)|list * 90)|select('equalto', -1)|first }}",
    "a range, rejected": "{{ (range(99999)|list * 90)|reject('ge', 0)|list }}",
    "a range, sorted": "{{ (range(99999)|list * 90)|sort|first }}",
    "a range, unique": "{{ (range(99999)|list * 90)|unique|list|length }}",
    "a range, groups": "{{ (range(99999)|list * 90)|groupby('real')|length }}",
    "a range, batches": "{{ (range(99999)|list * 90)|batch(9)|list|length }}",
    "a range, slices": "{{ (range(99999)|list * 90)|slice(9)|list|length }}",
    "a range, reversed": "{{ (range(99999)|list * 90)|reverse|list|length }}",
    "a range, tojson": "{{ (range(99999)|list * 90)|list|tojson|length }}",
    "a range as keys": "{{ dict.fromkeys((range(99999)|list * 90))|length }}",
    "a range as arguments": "{{ cycler(*(range(99999)|list * 90)).next() }}",
    "a range as a macro's arguments": (
        "{% macro f() %}{{ varargs|length }}{% endmacro %}{{ f(*(range(99999)|list * 90)) }}"
    ),
    "a range, cycled": "{% for i in [1] %}{{ loop.cycle(*(range(99999)|list * 90)) }}{% endfor %}",
    "a range, by random": (
        "{% for i in (range(99999)|list * 90) %}{{ (range(99999)|list * 90)|random }}{% endfor %}"
    ),
    "a range, the first of the last": "{{ (range(99999)|list * 90)|map('string')|last }}",
    "ranges of ranges": (
        "{{ (range(99999)|list * 99)|map('string')|map('list')|map('join')|join|length }}"
    ),
    "a macro that calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a macro that forks": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"
    ),
    "macros that call each other": (
        "{% macro f(n) %}{{ g(n) }}{% endmacro %}{% macro g(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}"
    ),
    "a macro given to itself": "{% macro f(g) %}{{ g(g) }}{% endmacro %}{{ f(f) }}",
    "macros that swell": (
        "{% macro f(n) %}{% for i in range(10) %}{{ f(n - 1) if n }}{% endfor %}{% endmacro %}"
        "{{ f(30) }}"
    ),
    "a caller that calls": (
        "{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}"
        "{{ g() }}{% endcall %}{% endmacro %}{{ g() }}"
    ),
    "a loop that calls itself": (
        "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{{ loop([[1]]) }}{% endfor %}"
    ),
    "a loop that forks": (
        "{% for x in range(2) recursive %}{% if loop.depth < 60 %}"
        "{{ loop(range(2)) }}{% endif %}{% endfor %}"
    ),
    "a block that shows itself": "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
    "a cycler": (
        "{% set c = cycler(1, 2) %}{% for i in (range(99999)|list * 90) %}{% set x = c.next() %}{%"
        " endfor %}"
    ),
    "a joiner": (
        "{% set j = joiner('a' * 999999) %}{% for i in range(99999) %}{{ j() }}{% endfor %}"
    ),
    "a namespace that holds itself": (
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}{{ ns.a.a.a == ns }}{{ [ns]|tojson }}"
    ),
    "a namespace in a list in itself": (
        "{% set ns = namespace(l=[]) %}{% set ns.l = [ns, ns.l] %}{{ ns.l }}{{ ns.l|string }}"
    ),
    "lorem ipsum": "{{ lipsum(n=999999, max=99999) }}",
    "a pretty print": "{{ ((range(99999)|list * 90)|list)|pprint }}",
    "filters without end": (
        "{% for i in (range(99999)|list * 90) %}{% set x = messages|tojson %}{% endfor %}"
    ),
    "maps of maps": (
        "{{ [[['a']]]|map('map', 'map', 'upper')|map('map', 'list')|map('list')|list }}"
    ),
    "a giant error": "{{ raise_exception('a' * 15000000) }}",
    "an error in many lines": "{{ raise_exception('a\n' * 999) }}",
    "an unknown tag of great length": "{% " + "a" * 1_000_000 + " %}",
    "an include": "{% include 'a' %}",
    "an import": "{% import '/etc/passwd' as x %}",
    "a parent": "{% extends messages[0].content %}",
    "a null": "{{ 'a\\x00b' }}\x00{{ strftime_now('a\\x00b') }}",
    "a surrogate": "{{ '\\ud800' }}{{ strftime_now('\\ud800') }}",
    "a surrogate in the source": "\ud800{{ '\udfff' }}",
    "a surrogate in an error": "{{ raise_exception('\\ud800' * 999) }}",
    "a surrogate in a name": "{{ messages['\ud800'] }}{{ nothing.a['\ud800'] }}",
    "an error that looks like a reply": (
        "{{ raise_exception('{\\x22text\\x22: 1}\\n\\x00\\x00\\x00\\x04') }}"
    ),
    "an error of a namespace": "{{ raise_exception(namespace(a=namespace)) }}",
    "an error of a loop": "{% for m in messages %}{{ raise_exception(loop) }}{% endfor %}",
    "an empty cycler": "{{ cycler().next() }}",
    "a cycler without end": (
        "{% set c = cycler(1, 2) %}{% for i in (range(99999)|list * 90) if c.next() > 2 %}"
        "{% endfor %}"
    ),
    "functions printed": (
        "{% macro f() %}{{ caller }}{{ f }}{{ loop }}{% endmacro %}{% call f() %}{% endcall %}"
    ),
    "many blocks": "".join(f"{{% block b{n} %}}{{% endblock %}}" for n in range(20_000)),
    "many macros": "".join(f"{{% macro m{n}() %}}{{% endmacro %}}" for n in range(20_000)),
    "many carriage returns": "\r" * 900_000 + "{{ 1 }}",
    "many lines": "{{ 1 }}\n" * 100_000,
    "a loop whose length doubles": (
        "{% set ns = namespace(l=[1]) %}{% for a in range(60) %}{% for b in ns.l %}"
        "{% set ns.l = ns.l + [b] %}{% endfor %}{% endfor %}"
    ),
    "a range past the sandbox's": "{{ range(10 ** 12)|list }}",
    "a sort by a slow key": (
        "{{ (range(99999)|map('string')|list)|sort(attribute='0,0,0,0,0,0,0,0')|length }}"
    ),
    "a memory that is given back": (
        "{% for i in range(99999) %}{% set x = 'a' * 16000000 %}{% endfor %}"
    ),
    "a thousand errors": (
        "{% for i in (range(99999)|list * 90) %}"
        "{{ messages.nothing|string }}{{ nothing|default(i) }}{% endfor %}"
    ),
    "nothing": "",
}

FOLDED = {
    "a text": "{% if 'a' * 10 ** 10 %}x{% endif %}",
    "a list": "{% set x = [0] * 10 ** 10 %}",
    "half the limit, often": "{{ ('a' * 8000000)|upper }}" * 60,
    "a filter": "{{ 'x'|center(10 ** 10) }}",
    "filters": "{{ (('<' * 999999)|e|e|e|e|e|e|e|e|e)|length }}",
    "a power in a dict": "{{ {'a': 9 ** 9 ** 9}.a }}",
    "a power in a condition": "{{ 1 if 9 ** 9 ** 9 else 2 }}",
    "a power, negated": "{{ -(9 ** 9 ** 9) }}",
    "a power in text": "{{ 'a' ~ 9 ** 9 ** 8 }}",
    "a range": "{% for i in [9 ** 9 ** 9] %}{% endfor %}",
    "a macro's default": "{% macro f(a=9 ** 9 ** 9) %}{% endmacro %}{{ f() }}",
    "in a branch that is never taken": "{% if false %}{{ 'a' * 10 ** 10 }}{% endif %}x",
    "a test": "{{ ('a' * 10 ** 10) is string }}",
    "a comparison": "{{ 'a' * 10 ** 9 < 'b' * 10 ** 9 }}",
    "a slice": "{{ ('a' * 10 ** 10)[:1] }}",
    "a test in a loop's condition": "{% for i in [1] if 'b' in 'a' * 10 ** 10 %}{% endfor %}",
    "a list filter": "{{ ('ab' * 99999999)|list|length }}",
    "a replace": "{{ ('a' * 99999)|replace('a', 'b' * 99999)|length }}",
    "tojson": "{{ [[1]]|tojson(indent=10 ** 9) }}",
    "a format": "{{ '%999999999d'|format(1) }}",
    "in a with": "{% with a = 'a' * 10 ** 10 %}{{ a }}{% endwith %}",
    "a filter block": "{% filter center(10 ** 10) %}a{% endfilter %}",
    "the constant True": "{{ true * 10 ** 10 * 'a' }}",
}

ESCAPES = {
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "classes of a field": "{{ messages[0].content.__class__ }}",
    "classes by a subscript": "{{ ''['__class__'] }}{{ messages['__class__'] }}",
    "classes by attr": "{{ ''|attr('__class__') }}{{ messages|attr('__class__') }}",
    "classes by attr and join": "{{ ()|attr(['__cla', 'ss__']|join) }}",
    "classes by map": (
        "{{ ['']|map(attribute='__class__')|list }}{{ ['']|map('attr', '__class__')|list }}"
    ),
    "classes by format": (
        "{{ '{0.__class__}'.format(messages) }}{{ '{0.__class__.__mro__}'.format('') }}"
    ),
    "classes by format_map": "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "classes by a safe format": "{{ ('{0.__class__}'|safe).format(1) }}",
    "classes by the format of attr": "{{ ('{0.__class__}'|attr('format'))(1) }}",
    "classes by sort": (
        "{{ messages|groupby('__class__') }}{{ messages|sort(attribute='__class__')|length }}"
    ),
    "classes by sum": "{{ ['']|sum(attribute='__class__', start='') }}",
    "globals of a cycler": "{{ cycler.__init__.__globals__ }}",
    "globals of a joiner": "{{ joiner.__init__.__globals__ }}{{ joiner('')|attr('__init__') }}",
    "globals of a namespace": (
        "{{ namespace.__init__.__globals__ }}{{ namespace.__class__ }}{{ namespace().__class__ }}"
    ),
    "globals of a range": "{{ range.__class__ }}{{ range(1).__class__ }}",
    "globals of a dict": "{{ dict.__class__ }}{{ dict.__call__ }}{{ dict.fromkeys.__func__ }}",
    "globals of the clock": "{{ strftime_now.__globals__ }}{{ strftime_now.__closure__ }}",
    "globals of raise": "{{ raise_exception.__globals__ }}{{ raise_exception.__code__ }}",
    "globals of a macro": (
        "{% macro f() %}{% endmacro %}{{ f._func }}{{ f._environment }}{{ f.__call__ }}"
    ),
    "globals of a caller": (
        "{% macro f() %}{{ caller.__globals__ }}{{ caller._func }}{% endmacro %}"
        "{% call f() %}{% endcall %}"
    ),
    "globals of a loop": (
        "{% for i in [1] %}{{ loop.__init__ }}{{ loop._iterator }}{{ loop._recurse }}{% endfor %}"
    ),
    "self": "{{ self.__init__.__globals__ }}{{ self._TemplateReference__context }}",
    "an undefined value": (
        "{{ nothing.__class__ }}{{ (nothing|default(nothing))|attr('_undefined_name') }}"
    ),
    "a name with underscores": "{% set ns = namespace(__class__=1) %}{% set ns.__x = 1 %}",
    "a name with underscores, later": (
        "{% set ns = namespace() %}{% set ns._weigh = 1 %}{{ ns._weigh }}"
    ),
    "a generator's frame": (
        "{{ (messages|map('upper')).gi_frame }}{{ (messages|map('upper')).gi_code }}"
    ),
    "the meter of a list": "{{ (messages|metered).meter }}",
    "the meter, lowered": (
        "{% set x = messages|metered %}{% for i in range(9) %}"
        "{{ x.meter.size(-10 ** 12) }}{% endfor %}"
    ),
    "the meter of a loop": "{% for m in messages %}{{ loop._iterable }}{{ m.meter }}{% endfor %}",
    "the trace of a field": (
        "{{ messages[0].content.trace }}{{ messages[0].content.node }}"
        "{{ messages[0].content.parts }}"
    ),
    "the trace by attr": (
        "{{ messages[0].content|attr('trace') }}{{ messages[0].content|attr('plain') }}"
    ),
    "the trace by a subscript": (
        "{{ messages[0].content['trace'] }}{{ messages|map(attribute='content.trace')|first }}"
    ),
    "the trace by format": "{{ '{0.trace}'.format(messages[0].content) }}",
    "a change of the data": "{{ messages.append(1) }}",
    "a change of a message": "{{ messages[0].update(a=1) }}{{ messages[0].pop('role') }}",
    "a change by attr": "{{ (messages|attr('clear'))() }}",
    "the environment": (
        "{{ environment }}{{ context }}{{ resolve }}{{ cond_expr_undefined }}{{ missing }}"
    ),
}

FAMILIES: dict[str, dict[str, str]] = {
    "widths": WIDTHS,
    "repeats": REPEATS,
    "numbers": NUMBERS,
    "compared": COMPARED,
    "depth": DEPTH,
    "loops": LOOPS,
    "folded": FOLDED,
    "escapes": ESCAPES,
}
ATTACKS = {
    f"{family}: {name}": source
    for family, attacks in FAMILIES.items()
    for name, source in attacks.items()
}
