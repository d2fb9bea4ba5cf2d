"""The Jinja environment that chat templates are written for: what transformers' `apply_chat_template` offers.

Same options, filters, globals and extensions as transformers 5 gives to a template, so that the same source and the
same messages give the same text. It counts nothing and bounds nothing: it is used in the template process alone, whose
limits the kernel enforces (see `template_process`).
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Any

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class GenerationTag(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}`: a mark for trainers, which adds nothing to the text."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse the tag and what it encloses, up to `{% endgeneration %}`."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_render_body"), [], [], body).set_lineno(line)

    def _render_body(self, caller: Callable[[], str]) -> str:
        """Render what the tag encloses, with nothing added."""
        return caller()


class TemplateDict:
    """`dict(...)` for templates, without the class and its attributes."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """A dict from these keys, as `dict.fromkeys` makes it."""
        return dict.fromkeys(*args, **kwargs)


class TemplateNamespace(jinja2.utils.Namespace):
    """`namespace(...)`, which refuses names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        # `self` is taken from the arguments, so that a template may call a variable `self`.
        self, positional = args[0], args[1:]
        values = dict(*positional, **kwargs)
        for name in values:
            _refuse_private_name(name)
        jinja2.utils.Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private_name(name)
        super().__setitem__(name, value)


def _refuse_private_name(name: Any) -> None:
    """Refuse a name that begins with an underscore. Raises SecurityError."""
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(
            f"a chat template can't store the name {name!r} in a namespace; drop its underscore"
        )


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """One per template."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationTag, jinja2.ext.loopcontrols],
            # Folding would run constant expressions, `'a' * 10**9`, while the template is compiled.
            optimized=False,
            **options,
        )
        self.now = datetime.datetime.now()
        """The clock that `strftime_now` shows; set before each rendering."""
        self.filters["tojson"] = tojson
        self.globals["raise_exception"] = raise_exception
        self.globals["strftime_now"] = self.strftime_now
        self.globals["dict"] = TemplateDict()
        self.globals["namespace"] = TemplateNamespace

    def strftime_now(self, format: str) -> str:
        """The time now in this format, by the clock of the environment."""
        return self.now.strftime(format)


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """A value to JSON, as transformers' filter does: Jinja's own escapes HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def raise_exception(message: Any) -> None:
    """Raise an exception of the template: what it calls to refuse a conversation."""
    raise jinja2.exceptions.TemplateError(message)
