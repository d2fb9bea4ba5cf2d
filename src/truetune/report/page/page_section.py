"""Section, one part of the page that is made from a report's JSON, and the templates that parts are
written with.

A section is HTML that stands without scripts, and data for a script that makes more of it. Templates escape all that
they are given; only text that went through one is `Markup`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from truetune.report.visible_text import (
    count_noun,
    escape_invisible_characters,
    format_per_cent_share,
)

Result = Mapping[str, Any]
"""A report as JSON: see docs/schema/report-1.json"""


@dataclass(frozen=True, slots=True)
class Section:
    """One section of the page: its heading, its HTML, and data for a script."""

    id: str
    """Its anchor; a script of the page may register for it: `truetune.section(id, (element, data) => ...)`"""
    title: str
    html: Markup
    data: Any = field(default=None)
    """What its script reads: JSON"""


SectionMaker = Callable[[Result], Section | None]
"""Gives None where the report has nothing for its section. Everything is read with care: the JSON may be by hand."""


def render_template(template: str, /, **values: Any) -> Markup:
    """Fill in a template of `assets/` with everything escaped; its filter `escape_invisible_characters` shows unseen
    characters as escapes.
    """
    # Markup, because the template has escaped all that it was given: a second time would show
    # "&amp;lt;".
    return Markup(_template_environment().get_template(template).render(**values))


def read_asset(name: str) -> str:
    """The text of a file of `assets/`."""
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _template_environment() -> jinja2.Environment:
    """The jinja environment, made once: it compiles each template for the first section that draws
    it.
    """
    # `StrictUndefined`: a name that is misspelled in a template is an error of ours, and no
    # empty cell that nobody notices.
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FunctionLoader(read_asset),
    )
    environment.filters |= {
        # Escaping alone does not show a zero-width space or a text that runs backwards.
        "visible": lambda value: escape_invisible_characters(str(value)),
        "many": count_noun,
        "share": format_per_cent_share,
        "number": "{:,}".format,
    }
    return environment
