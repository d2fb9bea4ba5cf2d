"""Chat templates from Jinja's grammar, by chance, and rows whose contents answer their questions differently.

A rule is a pattern with holes («str», «int», ...), each filled by a rule of that type, until the depth is used up. The
types are loose: they only make most templates render. Nothing here knows how a template is written by people, so that
what the tests find does not depend on a list of idioms.

All of it is deterministic: a template is known by its seed, a row by the seed and its number.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from truetune.data.conversation import Conversation, Origin

HOLE = re.compile("«(\\w+)»")
DEPTHS = (1, 1, 2, 2, 3)
"""How deep expressions and statements nest, by chance. Small templates give more recipes, large ones more mixtures."""

REFUSED_FILTERS = frozenset(
    ("lipsum", "pprint", "urlize", "wordwrap", "xmlattr", "striptags", "filesizeformat", "random")
)
"""Filters that truetune refuses and transformers takes."""
REFUSED_METHODS = frozenset(
    (
        "translate",
        "maketrans",
        "format_map",
        "decode",
        "hex",
        "bit_length",
        "is_integer",
        "as_integer_ratio",
    )
)
"""Methods that truetune refuses and transformers takes."""

Rules = dict[str, tuple[tuple[float, str], ...]]
"""By type: (weight, pattern)."""

LEAVES: Rules = {
    "str": (
        (10, "«msg».content"),
        (3, "«msg»['content']"),
        (2, "«msg».get('content')"),
        (1, "messages.0.content"),
        (2, "«msg».role"),
        (1, "«msg».get('name', 'nobody')"),
        (1, "(«msg».reasoning_content|default(''))"),
        (1, "(«msg».name or 'none')"),
        (4, "«literal»"),
        (2, "«ns».s"),
        (1, "bos_token"),
    ),
    "literal": tuple(
        (1, repr(text))
        for text in (
            "yes no",
            "a b c yes",
            "answer: ",
            "a",
            "",
            ",",
            " ",
            "</think>",
            "<|im_end|>",
            "no",
            "1 42",
            "e",
            "User assistant",
            "{}",
            "%s",
            "line",
            "<b>&amp;</b>",
            "é日",
            "Yes",
            "role content",
            "%Y-%m",
        )
    ),
    "int": (
        (6, "«small»"),
        (2, "(«msg».content|length)"),
        (2, "«loop».index"),
        (1, "«loop».index0"),
        (1, "«loop».revindex"),
        (1, "«loop».length"),
        (1, "(messages|length)"),
        (1, "«ns».n"),
        (1, "(-2)"),
    ),
    "small": tuple((1, str(number)) for number in range(6)),
    "float": ((1, "1.5"), (1, "0.25"), (1, "(7 / 2)")),
    "bool": (
        (2, "true"),
        (1, "false"),
        (3, "«msg».content"),
        (2, "«loop».first"),
        (2, "«loop».last"),
        (1, "add_generation_prompt"),
        (1, "enable_thinking"),
        (1, "tools"),
        (2, "(«msg».role == 'user')"),
        (1, "(«msg».role != 'assistant')"),
        (1, "(«msg».tool_calls is defined)"),
    ),
    "strs": (
        (2, "['yes', 'no', 'a']"),
        (1, "('user', 'a', '')"),
        (3, "[«msg».content, 'yes']"),
        (2, "«msg».content.split()"),
        (2, "(messages|map(attribute='content')|list)"),
        (1, "(«msg».content|list)"),
        (1, "[]"),
        (1, "«ns».l"),
    ),
    "msgs": ((5, "messages"), (1, "messages[1:]"), (1, "messages[:-1]"), (1, "messages[::-1]")),
    "msg": (
        (2, "messages[0]"),
        (2, "messages[-1]"),
        (1, "(messages|first)"),
        (1, "(messages|last)"),
    ),
    "dict": (
        (2, "{'a': «msg».content, 'b': 'x'}"),
        (1, "dict(a=«msg».content)"),
        (1, "{«msg».content: 'x'}"),
        (1, "«msg»"),
    ),
    "loop": (),
    "ns": (),
    "macro": (),
    "caller": (),
}
"""Patterns that end a branch. A type without any is there only where a statement made such a name."""

BRANCHES: Rules = {
    "str": (
        # operators
        (4, "(«str» ~ «any»)"),
        (3, "(«str» + «str»)"),
        (1, "(«str» * «small»)"),
        (1, "(«small» * «str»)"),
        (2, "('%s' % «any»)"),
        (2, "('<%s>' % («str»,))"),
        (2, "('%s: %s' % («str», «any»))"),
        (1, "('%(a)s|%(b)r' % {'a': «str», 'b': «any»})"),
        (1, "('%5.3s%%%-4d' % («str», «int»))"),
        (1, "(«str» % «str»)"),
        (1, "(«str» % ())"),
        (3, "(«str» if «bool» else «str»)"),
        (1, "(«str» if «bool»)"),
        (2, "(«str» or «str»)"),
        (1, "(«str» and «str»)"),
        (2, "«str»[«int»]"),
        (2, "«str»[«small»:]"),
        (2, "«str»[:-1]"),
        (1, "«str»[::-1]"),
        (1, "«str»[«small»:«int»:2]"),
        # filters
        (2, "(«str»|upper)"),
        (2, "(«str»|lower)"),
        (1, "(«str»|title)"),
        (1, "(«str»|capitalize)"),
        (3, "(«str»|trim)"),
        (1, "(«str»|trim('ay '))"),
        (1, "(«str»|trim(«str»))"),
        (2, "(«str»|replace(«literal», «str»))"),
        (1, "(«str»|replace('a', «literal», «small»))"),
        (2, "(«any»|string)"),
        (1, "(«str»|e)"),
        (1, "(«str»|escape)"),
        (1, "(«str»|forceescape)"),
        (1, "(«str»|safe)"),
        (1, "((«str»|safe) + «str»)"),
        (1, "((«str»|e) ~ «str»)"),
        (1, "(«str»|center(«int» % 9))"),
        (1, "(«str»|indent(«small»))"),
        (1, "(«str»|indent(«small», first=true))"),
        (1, "(«str»|indent(«str», true, true))"),
        (1, "(«str»|truncate(9, «bool», «literal», «small»))"),
        (1, "(«str»|urlencode)"),
        (1, "(«dict»|urlencode)"),
        (2, "(«str»|default(«str»))"),
        (1, "(«str»|d(«literal», true))"),
        (1, "(nothing|default(«str»))"),
        (1, "(«str»|reverse)"),
        (1, "(«str»|first)"),
        (1, "(«str»|last)"),
        (1, "(«str»|min)"),
        (1, "(«str»|max)"),
        (2, "(«any»|tojson)"),
        (1, "(«any»|tojson(indent=2))"),
        (1, "(«any»|tojson(ensure_ascii=true, sort_keys=true))"),
        (1, "(«any»|tojson(separators=(',', ':')))"),
        (1, "(«str»|format(«any»))"),
        (1, "('%s-%s'|format(«any», «any»))"),
        (1, "('%(a)s'|format(a=«str»))"),
        (1, "(«strs»|join)"),
        (2, "(«strs»|join(«literal»))"),
        (1, "(«iter»|join(«str»))"),
        (1, "(«msgs»|join(', ', attribute='content'))"),
        (2, "(«msgs»|map(attribute='content')|join('|'))"),
        (1, "(«strs»|first)"),
        (1, "(«strs»|last)"),
        (1, "(«strs»|min|string)"),
        (1, "(«strs»|max|string)"),
        (1, "(«iter»|first|string)"),
        (1, "(«str»|map('upper')|join('.'))"),
        (1, "('%.2f' % «float»)"),
        (1, "(«str» * («str»|length % 3))"),
        (1, "(«msg»|attr('content')|string)"),
        (1, "(«msg»|items|list|string)"),
        (1, "(«dict»|dictsort|list|string)"),
        (1, "(«dict»|dictsort(by='value', reverse=true)|string)"),
        (1, "(«str»|batch(3, '-')|list|string)"),
        (1, "(«strs»|slice(2)|list|string)"),
        (0.2, "(«str»|pprint)"),
        (0.2, "([«str»]|random)"),
        (0.2, "(«str»|urlize)"),
        (0.2, "(«str»|wordwrap(7))"),
        (0.2, "(«str»|striptags)"),
        (0.2, "(«int»|filesizeformat)"),
        (0.2, "(«dict»|xmlattr)"),
        # methods
        (2, "«str».upper()"),
        (2, "«str».lower()"),
        (1, "«str».title()"),
        (1, "«str».capitalize()"),
        (1, "«str».swapcase()"),
        (1, "«str».casefold()"),
        (3, "«str».strip()"),
        (2, "«str».strip('\\n')"),
        (1, "«str».strip(«str»)"),
        (2, "«str».lstrip()"),
        (1, "«str».rstrip('a ')"),
        (2, "«str».replace(«literal», «literal»)"),
        (1, "«str».replace(«str», «str»)"),
        (1, "«str».replace('a', «str», 1)"),
        (1, "«str».removeprefix(«literal»)"),
        (1, "«str».removesuffix(«str»)"),
        (1, "«str».center(«int» % 9)"),
        (1, "«str».ljust(7, '.')"),
        (1, "«str».rjust(«int» % 9, '*')"),
        (1, "«str».zfill(5)"),
        (1, "«str».expandtabs(3)"),
        (2, "«str».split(«literal» or ' ')[0]"),
        (2, "«str».split('</think>')[-1]"),
        (1, "«str».rsplit(none, 1)[-1]"),
        (1, "«str».split(«str» or ',', 1)[-1]"),
        (1, "«str».partition(«literal» or '-')[2]"),
        (1, "«str».rpartition(' ')[0]"),
        (1, "(«str».splitlines()|first|string)"),
        (1, "(«str».splitlines(true)|string)"),
        (1, "«literal».join(«strs»)"),
        (1, "«str».join(«strs»)"),
        (1, "«str».join(«str»)"),
        (1, "','.join(«iter»)"),
        (1, "'{}-{}'.format(«any», «any»)"),
        (1, "'{0}{0!r}'.format(«str»)"),
        (1, "'{a:>6}'.format(a=«str»)"),
        (1, "'{:.2}|{:^5}'.format(«str», «str»)"),
        (1, "'{0[content]}'.format(«msg»)"),
        (1, "«str».format(«any», x=«any»)"),
        (0.2, "'{a}'.format_map({'a': «str»})"),
        (2, "(«str».encode()|string)"),
        (0.2, "«str».encode().decode()"),
        (0.2, "«str».encode('utf-8').hex()"),
        (0.2, "«str».translate({97: 'b', 121: none})"),
        (0.2, "«str».translate(«str».maketrans('a', 'b'))"),
        # containers
        (1, "{'a': «str», 'b': «str»}['b']"),
        (1, "{'a': «str»}.a"),
        (2, "{'yes': 'Y', 'no': «str»}.get(«str», «str»)"),
        (1, "{'yes': 'Y', 'a': 'A'}[«str»]"),
        (1, "dict(a=«str», b=1).a"),
        (1, "(«dict».values()|list|string)"),
        (1, "(«dict».keys()|first|string)"),
        (1, "(«dict».items()|list|last|string)"),
        (1, "(«dict».copy()|string)"),
        (1, "(«strs»[0]|string)"),
        (1, "(«strs»[«int»]|string)"),
        (1, "([«str», [«str», {'k': «str»}]]|string)"),
        (1, "[«str», «str»][«bool»|length > 0]"),
        # globals and calls
        (2, "strftime_now(«literal»)"),
        (2, "strftime_now(«str»)"),
        (4, "«macro»(«str»)"),
        (2, "«macro»(«str», b=«str»)"),
        (1, "«macro»(*[«str», «str»])"),
        (1, "«macro»(**{'a': «str»})"),
        (1, "«macro»(«str», «str», «str», c=«str»)"),
        (1, "namespace(**{'a': «str»}).a"),
        (3, "«caller»(«str»)"),
        (1, "cycler(«str», 'b').next()"),
        (1, "(joiner(«str»)() ~ «str»)"),
        (1, "namespace(a=«str»).a"),
        (1, "«loop».cycle(«str», 'z')"),
        (1, "(«loop».previtem|default('first')|string)"),
        (1, "(«loop».nextitem|default(«str»)|string)"),
        (1, "(raise_exception(«str») if «bool» and «bool» and false else «str»)"),
    ),
    "int": (
        (2, "(«str»|length)"),
        (1, "(«str»|count)"),
        (1, "(«strs»|length)"),
        (2, "(«str»|int)"),
        (1, "(«str»|int(«small»))"),
        (1, "(«str»|float|int)"),
        (1, "(«str»|wordcount)"),
        (1, "«str».find(«str»)"),
        (1, "«str».rfind(«literal»)"),
        (1, "«str».count(«str»)"),
        (1, "«str».index(«str»[:1])"),
        (1, "«str».rindex(«str»[:1])"),
        (1, "(«str»|int(base=16))"),
        (1, "«strs».count(«str»)"),
        (1, "([«str»] + «strs»).index(«str»)"),
        (1, "(«str».encode()|length)"),
        (1, "(«str».encode()|sum)"),
        (2, "(«int» + «int»)"),
        (1, "(«int» - «int»)"),
        (1, "(«int» * «small»)"),
        (1, "(«int» // 2)"),
        (1, "(«int» % 3)"),
        (1, "(«small» ** «small»)"),
        (1, "(-«int»)"),
        (1, "(+«int»)"),
        (1, "(«int»|abs)"),
        (1, "(«float»|round|int)"),
        (1, "(«strs»|map('length')|sum)"),
        (1, "(«int» if «bool» else «int»)"),
        (1, "([«int», «int»]|max)"),
        (1, "«loop».depth"),
    ),
    "float": (
        (1, "(«int» / 4)"),
        (1, "(«str»|float)"),
        (1, "(«float»|round(«small», 'floor'))"),
        (1, "(«int» * 0.5)"),
    ),
    "bool": (
        *(
            (1, f"(«str» {operator} «{other}»)")
            for operator in ("==", "!=", "<", "<=", ">", ">=")
            for other in ("str", "literal")
        ),
        (2, "(«str» == «literal»)"),
        (1, "(«str» == «any»)"),
        (1, "(«any» != «any»)"),
        (1, "(«str» < «str» <= «str»)"),
        (1, "(«small» < «int» < 9)"),
        (1, "(«int» >= «int»)"),
        (1, "(«strs» == «strs»)"),
        (1, "(«strs» < «strs»)"),
        (1, "(«dict» == «dict»)"),
        (1, "((«str», 1) == («str», 1))"),
        (5, "(«str» in «literal»)"),
        (5, "(«str» not in «literal»)"),
        (2, "(«literal» in «str»)"),
        (1, "(«literal» not in «str»)"),
        (2, "(«str» in «str»)"),
        (2, "(«str» in ['yes', 'no', «str»])"),
        (1, "(«str» not in ('a', 'b'))"),
        (2, "(«str» in «strs»)"),
        (1, "(«str» in «iter»)"),
        (1, "(«str» in {'yes': 1, 'a': 2})"),
        (1, "(«str» in «dict»)"),
        (1, "(«str» in «dict».values())"),
        (1, "(«int» in range(4))"),
        (1, "(«msg» in «msgs»)"),
        (1, "(«str» in (nothing or «str»))"),
        (0.2, "(messages.append(«str») is none)"),
        (1, "(«str» in «msgs»|map(attribute='content'))"),
        (2, "(not «bool»)"),
        (2, "(«bool» and «bool»)"),
        (2, "(«bool» or «bool»)"),
        (1, "(«bool» if «bool» else «bool»)"),
        (2, "«str».startswith(«literal»)"),
        (1, "«str».startswith(«str»)"),
        (1, "«str».startswith(('a', 'y'))"),
        (1, "«literal».startswith(«str»)"),
        (1, "«str».endswith(«str»)"),
        (1, "«literal».endswith(«str»)"),
        *(
            (1, f"«str».{name}()")
            for name in (
                "isalnum",
                "isalpha",
                "isascii",
                "isdecimal",
                "isdigit",
                "isidentifier",
                "islower",
                "isnumeric",
                "isprintable",
                "isspace",
                "istitle",
                "isupper",
            )
        ),
        *(
            (1, f"(«any» is {name})")
            for name in (
                "defined",
                "none",
                "boolean",
                "integer",
                "float",
                "string",
                "mapping",
                "number",
                "sequence",
                "iterable",
                "callable",
                "escaped",
                "true",
                "false",
                "undefined",
            )
        ),
        (1, "(«str» is lower)"),
        (1, "(«str» is upper)"),
        (1, "(«str» is in «literal»)"),
        (1, "(«str» is in «strs»)"),
        (1, "(«str» is not in «str»)"),
        (1, "(«literal» is in «str»)"),
        (1, "(«str» is eq «str»)"),
        (1, "(«str» is ne «literal»)"),
        (1, "(«str» is lt «str»)"),
        (1, "(«str» is le «literal»)"),
        (1, "(«int» is greaterthan «int»)"),
        (1, "(«str» is ge «literal»)"),
        (1, "(«str» is equalto «literal»)"),
        (1, "(«msg» is sameas messages[0])"),
        (1, "(«bool» is sameas true)"),
        (1, "(«str» is filter)"),
        (1, "(«str» is test)"),
        (1, "(«int» is odd)"),
        (1, "(«int» is even)"),
        (1, "(«int» is divisibleby 3)"),
        (1, "(«int» is gt «int»)"),
        (1, "«loop».changed(«str»)"),
        (1, "(«str»|length > «small»)"),
        (1, "(«iter»|list|length > 1)"),
        (1, "(«str».encode() == «literal».encode())"),
        (1, "(«literal».encode() in «str».encode())"),
        (1, "(«str»|list == «strs»)"),
        (3, "(«macro»(«str») in «literal»)"),
        (1, "(('x' ~ «str») in 'xyes xno xa')"),
    ),
    "strs": (
        (2, "[«str», «str»]"),
        (1, "(«str», «str»)"),
        (2, "(«iter»|list)"),
        (2, "«str».split(«literal» or ',')"),
        (1, "«str».split(«str» or ',')"),
        (1, "«str».rsplit(' ', 1)"),
        (1, "«str».splitlines()"),
        (1, "«str».partition('a')"),
        (1, "(«str»|list)"),
        (1, "(«strs»|sort)"),
        (1, "(«strs»|sort(reverse=true, case_sensitive=true))"),
        (1, "(«strs»|list + [«str»])"),
        (1, "«strs»[1:]"),
        (1, "«strs»[::-1]"),
        (1, "(«strs» * 2)"),
        (1, "(«dict».keys()|list)"),
        (1, "(«msgs»|groupby('content')|map(attribute='grouper')|list)"),
        (1, "(«msgs»|groupby('role')|map('first')|list)"),
        (1, "(«strs» if «bool» else «strs»)"),
        (1, "(dict.fromkeys(«strs», 1)|list)"),
    ),
    "iter": (
        (2, "(«strs»|map('upper'))"),
        (1, "(«strs»|map('trim'))"),
        (1, "(«strs»|map('replace', 'a', «str»))"),
        (1, "(«strs»|map('default', 'x'))"),
        (2, "(«msgs»|map(attribute='content'))"),
        (1, "(«msgs»|map(attribute='name', default=«str»))"),
        (1, "(«strs»|select)"),
        (2, "(«strs»|select('in', «literal»))"),
        (1, "(«strs»|select('in', «strs»))"),
        (1, "(«strs»|select('equalto', «str»))"),
        (1, "(«strs»|select('>=', «str»))"),
        (1, "(«strs»|select('lessthan', «literal»))"),
        (1, "(«strs»|reject('ne', «literal»))"),
        (2, "(«strs»|reject('in', «str»))"),
        (1, "(«strs»|reject('lower'))"),
        (1, "(«strs»|reject('==', «literal»))"),
        (1, "(«strs»|unique)"),
        (1, "(«strs»|unique(case_sensitive=true))"),
        (1, "(«strs»|reverse)"),
        (1, "(range(«int» % 4)|map('string'))"),
        (1, "«strs»"),
        (1, "«str»"),
        (1, "(«dict».values()|map('string'))"),
    ),
    "msgs": (
        (2, "(«msgs»|selectattr('role', 'equalto', «literal»)|list)"),
        (1, "(«msgs»|selectattr('role', 'in', ['user', 'system'])|list)"),
        (1, "(«msgs»|selectattr('content')|list)"),
        (2, "(«msgs»|selectattr('content', 'in', «literal»)|list)"),
        (1, "(«msgs»|selectattr('content', 'eq', «str»)|list)"),
        (2, "(«msgs»|rejectattr('content', 'in', «literal»)|list)"),
        (1, "(«msgs»|rejectattr('content', 'in', «str»)|list)"),
        (1, "(«msgs»|rejectattr('content', 'lower')|list)"),
        (1, "(«msgs»|rejectattr('tool_calls', 'defined')|list)"),
        (1, "(«msgs»|sort(attribute='content'))"),
        (1, "(«msgs»|unique(attribute='content')|list)"),
        (1, "(«msgs»|reverse|list)"),
        (1, "((«msgs»|groupby('content')|first)[1])"),
        (1, "(«msgs» + «msgs»)"),
        (1, "[{'role': 'user', 'content': «str»}]"),
        (1, "(«msgs»|batch(2)|first)"),
    ),
    "dict": (
        (2, "{'a': «str», 'b': [«str»]}"),
        (1, "{«str»: «any»}"),
        (1, "dict(a=«any», b=«str»)"),
        (1, "dict(«dict», c=«str»)"),
        (1, "dict([('k', «str»)])"),
        (1, "dict.fromkeys(«strs», «str»)"),
        (1, "«dict».copy()"),
    ),
}
ANY = ("str", "str", "str", "int", "bool", "strs", "dict", "float")

TEXTS = (
    "<|im_start|>",
    "\n",
    " ",
    "Answer: ",
    "<|im_end|>\n",
    "  x\n",
    "{ % }",
    "[INST] ",
    "</s>",
    "</think>\n\n",
    "-",
)

WORDS = (
    "yes",
    "no",
    "a",
    "",
    "b",
    "A",
    "Yes",
    "yes no",
    "é",
    "日本",
    "x y",
    "a,b c",
    "1",
    "42",
    "-7",
    "3.5",
    "0",
    "{}",
    "{{ x }}",
    "{x}",
    "%s",
    "100%",
    "%Y",
    "%",
    "<|im_end|>",
    "</think>",
    "hm</think>done",
    "role",
    "user",
    "assistant",
    " lead",
    "trail \n",
    "line\nline",
    "<b>&amp;'\"",
    "ß",
    "ﬁ",
    "İ",
    "none",
    "true",
    "content",
    "\t\\",
    "a long answer, with yes and no in it, and a few more words. ",
)


class Part(NamedTuple):
    """A piece of a generated template."""

    type: str
    """What it stands for: a type of expression, or "statement"."""
    rule: str
    """The pattern that made it."""
    pieces: tuple[str | Part, ...]

    @property
    def text(self) -> str:
        return "".join(piece if isinstance(piece, str) else piece.text for piece in self.pieces)

    def walk(self) -> Iterator[Part]:
        """This part and all below it."""
        yield self
        for piece in self.pieces:
            if isinstance(piece, Part):
                yield from piece.walk()


Scope = dict[str, str]
"""The names that may be used, with their types."""
LOOP: Scope = {"loop": "loop", "break": "word"}
"""What a loop's body may use besides; no rule has a hole for words."""


class Grammar:
    """Makes one template."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.depth = self.random.choice(DEPTHS)
        self.names = 0
        self.statements: tuple[tuple[int, Callable[[Scope, int], Part]], ...] = (
            (6, self._text),
            (12, self._output),
            (6, self._if),
            (4, self._for),
            (3, self._set),
            (2, self._set_block),
            (2, self._macro),
            (1, self._call),
            (2, self._filter_block),
            (2, self._namespace),
            (2, self._namespace_set),
            (1, self._with),
            (1, self._generation),
            (1, self._raw),
            (1, self._comment),
            (1, self._block),
            (1, self._autoescape),
            (1, self._loop_control),
            (1, self._raise),
            (1, self._unpack),
        )

    def template(self) -> Part:
        """Most write each message between markers, as chat templates do; the others are free."""
        scope: Scope = {}
        head = self._body(scope, self.depth, 0, 1)
        if self.random.random() < 0.2:
            return Part("template", "free", (head, self._body(scope, self.depth, 1, 4)))
        body = self._body({**scope, "m": "msg", **LOOP}, self.depth, 1, 3)
        tail = self._body(scope, self.depth - 1, 0, 1)
        pieces = (
            head,
            "{% for m in messages %}<|im_start|>{{ m.role }}\n",
            body,
            "<|im_end|>\n{% endfor %}",
            tail,
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        )
        return Part("template", "chat", pieces)

    def expression(self, type: str, scope: Scope, depth: int) -> Part:
        if type == "any":
            type = self.random.choice(ANY)
        if self.random.random() < 0.005 and type in ANY:
            type = self.random.choice(ANY)
        rules = list(LEAVES.get(type, ())) if depth <= 0 or self.random.random() < 0.3 else []
        rules = rules or [
            *BRANCHES.get(type, ()),
            *(LEAVES.get(type, ()) if type not in BRANCHES else ()),
        ]
        names = [name for name, kind in scope.items() if kind == type]
        rules += [(4, name) for name in names]
        rules = [rule for rule in rules if self._possible(rule[1], scope)]
        (pattern,) = self.random.choices(
            [rule for _, rule in rules], [weight for weight, _ in rules]
        )
        pieces = HOLE.split(pattern)
        filled = [
            piece if i % 2 == 0 else self.expression(piece, scope, depth - 1)
            for i, piece in enumerate(pieces)
        ]
        return Part(type, pattern, tuple(piece for piece in filled if piece != ""))

    def _possible(self, pattern: str, scope: Scope) -> bool:
        """Is there a name for each hole that only a name can fill?"""
        return all(
            LEAVES.get(type, True) or type in scope.values() for type in HOLE.findall(pattern)
        )

    def _name(self, scope: Scope, type: str) -> str:
        self.names += 1
        name = f"v{self.names}"
        scope[name] = type
        return name

    def _body(self, scope: Scope, depth: int, least: int, most: int) -> Part:
        """Names that are made inside are in scope for what follows in it."""
        makers = [maker for _, maker in self.statements]
        weights = [weight for weight, _ in self.statements]
        count = self.random.randint(least, most)
        return Part(
            "body",
            "body",
            tuple(self.random.choices(makers, weights)[0](scope, depth) for _ in range(count)),
        )

    def _inner(self, scope: Scope, depth: int) -> Part:
        return self._body(dict(scope), depth - 1, 1, 2) if depth > 0 else self._output(scope, 0)

    def _function(self, scope: Scope, depth: int) -> Part:
        """A body that Jinja compiles to a function of its own, which can't end a loop around it."""
        return self._inner({name: type for name, type in scope.items() if name != "break"}, depth)

    def _statement(self, rule: str, *pieces: str | Part) -> Part:
        return Part("statement", rule, tuple(piece for piece in pieces if piece != ""))

    def _open(self) -> str:
        return self.random.choice(("{% ", "{% ", "{% ", "{%- ", "{%+ "))

    def _close(self) -> str:
        return self.random.choice((" %}", " %}", " %}", " -%}"))

    def _text(self, scope: Scope, depth: int) -> Part:
        return self._statement("text", self.random.choice(TEXTS))

    def _output(self, scope: Scope, depth: int) -> Part:
        mark = self.random.choice((("{{ ", " }}"), ("{{ ", " }}"), ("{{- ", " -}}")))
        return self._statement("output", mark[0], self.expression("any", scope, depth), mark[1])

    def _if(self, scope: Scope, depth: int) -> Part:
        pieces: list[str | Part] = [
            self._open(),
            "if ",
            self.expression("bool", scope, depth),
            self._close(),
        ]
        pieces.append(self._inner(scope, depth))
        if self.random.random() < 0.3:
            pieces += [
                "{% elif ",
                self.expression("bool", scope, depth),
                " %}",
                self._inner(scope, depth),
            ]
        if self.random.random() < 0.4:
            pieces += ["{% else %}", self._inner(scope, depth)]
        return self._statement("if", *pieces, "{% endif %}")

    def _for(self, scope: Scope, depth: int) -> Part:
        kind = self.random.choice(
            ("msgs", "msgs", "strs", "iter", "str", "items", "range", "recursive")
        )
        inside = {**scope, **LOOP}
        if kind == "items":
            pair = f"{self._name(inside, 'str')}, {self._name(inside, 'value')}"
            target, values = (
                pair,
                Part("items", "items", (self.expression("dict", scope, depth - 1), ".items()")),
            )
        elif kind == "range":
            target = self._name(inside, "int")
            values = Part(
                "range", "range", ("range(", self.expression("int", scope, depth - 1), " % 4)")
            )
        elif kind == "recursive":
            target = self._name(inside, "msg")
            values = self.expression("msgs", scope, depth - 1)
        else:
            target = self._name(inside, "msg" if kind == "msgs" else "str")
            values = self.expression(kind, scope, depth - 1)
        pieces: list[str | Part] = [self._open(), "for ", target, " in ", values]
        if self.random.random() < 0.25:
            filtered = {name: type for name, type in inside.items() if name not in LOOP}
            pieces += [" if ", self.expression("bool", filtered, depth - 1)]
        if kind == "recursive":
            pieces += [" recursive", self._close(), self._inner(inside, depth)]
            pieces.append("{% if loop.depth < 2 %}{{ loop(messages[:1]) }}{% endif %}")
        else:
            pieces += [self._close(), self._inner(inside, depth)]
        if self.random.random() < 0.2:
            pieces += ["{% else %}", self._inner(scope, depth)]
        return self._statement("for", *pieces, "{% endfor %}")

    def _set(self, scope: Scope, depth: int) -> Part:
        type = self.random.choice(
            ("str", "str", "str", "int", "bool", "strs", "msgs", "dict", "msg")
        )
        value = self.expression(type, scope, depth)
        return self._statement(
            "set", self._open(), "set ", self._name(scope, type), " = ", value, self._close()
        )

    def _unpack(self, scope: Scope, depth: int) -> Part:
        values = self.random.choice(
            (
                "(«str», «str»)",
                "(«str».split(' ', 1) + ['x'])[:2]",
                "[«str», «any»]",
                "«str».partition('a')[1:]",
            )
        )
        pieces = HOLE.split(values)
        filled = [
            self.expression(piece, scope, depth - 1) if i % 2 else piece
            for i, piece in enumerate(pieces)
        ]
        names = f"{self._name(scope, 'str')}, {self._name(scope, 'str')}"
        return self._statement("unpack", "{% set ", names, " = ", *filled, " %}")

    def _set_block(self, scope: Scope, depth: int) -> Part:
        inside = self._inner(scope, depth)
        filter = self.random.choice(("", "", "|upper", "|trim", "|replace('a', 'b')"))
        name = self._name(scope, "str")
        return self._statement("set block", "{% set ", name, filter, " %}", inside, "{% endset %}")

    def _macro(self, scope: Scope, depth: int) -> Part:
        macros = {name: type for name, type in scope.items() if type == "macro"}
        inside = {**(macros if depth > 1 else {}), "a": "str", "b": "str"}
        body = self._inner(inside, depth)
        name = self._name(scope, "macro")
        extra = self.random.choice(("", "", "{{ varargs|join }}{{ kwargs.c }}"))
        return self._statement(
            "macro", "{% macro ", name, "(a, b='x') %}", body, extra, "{% endmacro %}"
        )

    def _call(self, scope: Scope, depth: int) -> Part:
        name = self._name({}, "macro")
        macro = self._inner({"a": "str", "caller": "caller"}, depth)
        argument = self.expression("str", scope, depth - 1)
        inside = dict(scope)
        given = self._name(inside, "str")
        body = self._function(inside, depth)
        return self._statement(
            "call",
            "{% macro ",
            name,
            "(a) %}",
            macro,
            "{{ caller(a ~ '!') }}{% endmacro %}",
            "{% call(",
            given,
            ") ",
            name,
            "(",
            argument,
            ") %}",
            body,
            "{% endcall %}",
        )

    def _filter_block(self, scope: Scope, depth: int) -> Part:
        filter = self.random.choice(
            ("upper", "trim", "replace('yes', 'no')", "indent(2)", "e", "title", "tojson")
        )
        return self._statement(
            "filter block",
            "{% filter ",
            filter,
            " %}",
            self._inner(scope, depth),
            "{% endfilter %}",
        )

    def _namespace(self, scope: Scope, depth: int) -> Part:
        values = [self.expression(type, scope, depth - 1) for type in ("str", "int")]
        name = self._name(scope, "ns")
        return self._statement(
            "namespace",
            "{% set ",
            name,
            " = namespace(s=",
            values[0],
            ", n=",
            values[1],
            ", l=[]) %}",
        )

    def _namespace_set(self, scope: Scope, depth: int) -> Part:
        """Adds to a namespace; what is added reads none, or a loop would double it again and again."""
        names = [name for name, type in scope.items() if type == "ns"]
        if not names:
            return self._set(scope, depth)
        name = self.random.choice(names)
        plain = {other: type for other, type in scope.items() if type in ("msg", "loop")}
        field, type, before, after = self.random.choice(
            (
                ("s", "str", f"{name}.s ~ ", ""),
                ("s", "str", f"{name}.s + ", ""),
                ("s", "str", "", ""),
                ("n", "int", f"{name}.n + ", ""),
                ("n", "int", "", ""),
                ("l", "str", f"{name}.l + [", "]"),
            )
        )
        value = self.expression(type, plain, depth - 1)
        return self._statement(
            "namespace set", "{% set ", f"{name}.{field} = ", before, value, after, " %}"
        )

    def _with(self, scope: Scope, depth: int) -> Part:
        inside = dict(scope)
        value = self.expression("str", scope, depth - 1)
        name = self._name(inside, "str")
        return self._statement(
            "with",
            "{% with ",
            name,
            " = ",
            value,
            " %}",
            self._inner(inside, depth),
            "{% endwith %}",
        )

    def _generation(self, scope: Scope, depth: int) -> Part:
        return self._statement(
            "generation", "{% generation %}", self._function(scope, depth), "{% endgeneration %}"
        )

    def _raw(self, scope: Scope, depth: int) -> Part:
        return self._statement(
            "raw", "{% raw %}", self.random.choice(("{{ x }}", "{% y", "# }")), "{% endraw %}"
        )

    def _comment(self, scope: Scope, depth: int) -> Part:
        return self._statement("comment", self.random.choice(("{# c #}", "{#- c -#}\n")))

    def _block(self, scope: Scope, depth: int) -> Part:
        name = self._name({}, "block")
        return self._statement(
            "block", "{% block ", name, " scoped %}", self._function(scope, depth), "{% endblock %}"
        )

    def _autoescape(self, scope: Scope, depth: int) -> Part:
        value = self.random.choice(("true", "false"))
        return self._statement(
            "autoescape",
            "{% autoescape ",
            value,
            " %}",
            self._inner(scope, depth),
            "{% endautoescape %}",
        )

    def _loop_control(self, scope: Scope, depth: int) -> Part:
        if "break" not in scope:
            return self._output(scope, depth)
        word = self.random.choice(("break", "continue"))
        condition = self.expression("bool", scope, depth - 1)
        return self._statement(word, "{% if ", condition, " %}{% ", word, " %}{% endif %}")

    def _raise(self, scope: Scope, depth: int) -> Part:
        condition = (
            self.expression("bool", scope, depth - 1),
            self.expression("bool", scope, depth - 1),
        )
        message = self.expression("str", scope, 0)
        return self._statement(
            "raise",
            "{% if ",
            condition[0],
            " and ",
            condition[1],
            " %}{{ raise_exception(",
            message,
            ") }}{% endif %}",
        )


def template(seed: int) -> Part:
    """The template of a seed."""
    return Grammar(seed).template()


def rows(seed: int, count: int) -> list[Conversation]:
    """Rows of three shapes for the template of a seed; most are a question and an answer."""
    chance = random.Random(f"rows {seed}")
    return [_row(number, chance) for number in range(count)]


def _row(number: int, chance: random.Random) -> Conversation:
    def word() -> str:
        return chance.choice(WORDS)

    shape = (0, 0, 0, 1, 0, 0, 1, 2)[number % 8]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": word()},
        {"role": "assistant", "content": word()},
    ]
    tools: list[Any] | None = None
    variables: dict[str, Any] = {}
    if shape == 1:
        messages.insert(0, {"role": "system", "content": word()})
        messages[1]["name"] = word()
        variables = {"enable_thinking": False}
    if shape == 2:
        call = {"type": "function", "function": {"name": "look_up", "arguments": {"word": word()}}}
        messages[1] |= {"reasoning_content": word(), "tool_calls": [call]}
        messages += [
            {"role": "tool", "name": "look_up", "content": word()},
            {"role": "assistant", "content": word()},
        ]
        parameters = {"type": "object", "properties": {"word": {"type": "string"}}}
        tools = [
            {
                "type": "function",
                "function": {"name": "look_up", "description": word(), "parameters": parameters},
            }
        ]
    origin = Origin("rows", number + 1, number)
    return Conversation(origin, "messages", messages, tools=tools, template_kwargs=variables)


def shrink(
    tree: Part, data: list[Conversation], differs: Callable[[str, list[Conversation]], bool]
) -> tuple[Part, list[Conversation]]:
    """A smaller template and fewer rows that still differ: parts left out, or replaced by a part of their own."""
    data = _fewer(data, lambda some: differs(tree.text, some))
    smaller = True
    while smaller:
        smaller = False
        for candidate in _simpler(tree):
            if len(candidate.text) < len(tree.text) and differs(candidate.text, data):
                tree, smaller = candidate, True
                break
    return tree, _fewer(data, lambda some: differs(tree.text, some))


def _fewer(
    data: list[Conversation], differs: Callable[[list[Conversation]], bool]
) -> list[Conversation]:
    size = len(data) // 2
    while size:
        start = 0
        while start < len(data):
            rest = data[:start] + data[start + size :]
            if rest and differs(rest):
                data = rest
            else:
                start += size
        size //= 2
    return data


PLAINEST = {
    "str": "'a'",
    "int": "1",
    "bool": "true",
    "strs": "['a']",
    "dict": "{}",
    "msgs": "messages",
    "float": "1.5",
}


def _simpler(part: Part) -> Iterator[Part]:
    """The part with one of its parts replaced, the largest first."""
    if part.type in ("statement", "body"):
        yield Part("body", "nothing", ())
    if part.type == "statement":
        yield from (
            piece for piece in part.pieces if isinstance(piece, Part) and piece.type == "body"
        )
    if (
        part.rule not in [rule for _, rule in LEAVES.get(part.type, ())]
        and part.type in PLAINEST
        and part.text != PLAINEST[part.type]
    ):
        below = [other for other in part.walk() if other is not part and other.type == part.type]
        yield from sorted(below, key=lambda other: len(other.text))[:6]
        yield Part(part.type, PLAINEST[part.type], (PLAINEST[part.type],))
    for i, piece in enumerate(part.pieces):
        if isinstance(piece, Part):
            for other in _simpler(piece):
                yield part._replace(pieces=(*part.pieces[:i], other, *part.pieces[i + 1 :]))
        elif part.type == "template" and piece and "for" not in piece:
            yield part._replace(pieces=(*part.pieces[:i], "", *part.pieces[i + 1 :]))
