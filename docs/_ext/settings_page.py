"""The directive `truetune-settings`: a table of the fields of `RunSpec`, as `truetune.yaml` takes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from docutils import nodes
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from truetune.settings.run_spec import RunSpec


class Settings(SphinxDirective):
    """One table for the top level, and one for each part."""

    def run(self) -> list[nodes.Node]:
        """The tables, from Markdown."""
        return self.parse_text_to_nodes(
            "\n\n".join(_tables("", RunSpec)), allow_section_headings=True
        )


def _tables(prefix: str, part: type[BaseModel]) -> Iterator[str]:
    parts = {name: f.annotation for name, f in part.model_fields.items() if _is_part(f.annotation)}
    lines = [
        _line(f"{prefix}{name}", f) for name, f in part.model_fields.items() if name not in parts
    ]
    about = "" if part is RunSpec else _plain(part.__doc__ or "")
    head = f"## {prefix.rstrip('.') or 'Top level'}\n\n{about}\n\n| setting | values | default | |\n|---|---|---|---|\n"
    yield head + "\n".join(lines)
    for name, inner in parts.items():
        yield from _tables(f"{prefix}{name}.", inner)


def _line(name: str, field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    shown = "" if default in (None, (), {}) else f"`{_word(default)}`"
    cells = (f"`{name}`", _values(field.annotation), shown, _plain(field.description or ""))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _values(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(f"`{_word(value)}`" for value in get_args(kind))
    inner = [part for part in get_args(kind) if part is not NoneType]
    if get_origin(kind) is tuple:
        return "one or several" if inner[0] is str else f"several {_values(inner[0])}"
    if get_origin(kind) is dict:
        return "names and values"
    if inner:
        return " or ".join(_values(part) for part in inner)
    return {str: "text", int: "whole number", float: "number", bool: "`true`, `false`"}.get(
        kind, str(kind)
    )


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_part(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("truetune-settings", Settings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
