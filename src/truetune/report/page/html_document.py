"""The HTML document around the sections: head, security policy, style, navigation, packed data,
scripts.

A page is one file that needs no network: it can be sent, archived, and opened where the data may not leave. Its
Content-Security-Policy names the hashes of its one style and one script, so that text of the data can never run, even
if the escaping failed. Data for the scripts is compressed JSON in base64. The trade-off: search engines and "view
source" see the tables, and not the tokens.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any

from truetune.report.page.page_section import Result, Section, read_asset, render_template

STYLES = ("page.css", "tokens.css", "data.css", "run.css", "samples.css")
SCRIPTS = (
    "core.js",
    "cards.js",
    "findings.js",
    "spelling.js",
    "rows.js",
    "boxes.js",
    "panel.js",
    "search.js",
    "marks.js",
    "figures.js",
    "totals.js",
    "filters.js",
    "entries.js",
    "stage.js",
    "legend.js",
    "chosen.js",
    "hunt.js",
    "links.js",
    "keys.js",
    "tokens.js",
    "run.js",
    "samples.js",
    "start.js",
)
"""In this order one classic script; `core.js` makes the name `truetune`, `start.js` opens the sections"""


def html_document(
    title: str, sections: Sequence[Section], result: Result, *, connect: bool = False
) -> str:
    """A whole HTML document of the sections.

    Args:
        title: of the window.
        sections: in the order of the page.
        result: the report's JSON, for the head and the foot.
        connect: may its script read from the server that it came from?
    """
    style, script = _join_assets(STYLES), _join_assets(SCRIPTS)
    # `default-src 'none'` first: whatever is not named is forbidden, images and fonts included.
    policy = (
        f"default-src 'none'; style-src {_csp_hash(style)}; script-src {_csp_hash(script)};"
        f" {'connect-src ' + chr(39) + 'self' + chr(39) + '; ' if connect else ''}base-uri 'none';"
        " form-action 'none'"
    )
    return str(
        render_template(
            "page.html.jinja",
            title=title,
            sections=sections,
            result=result,
            style=style,
            script=script,
            policy=policy,
            packed=pack_json({s.id: s.data for s in sections if s.data is not None}),
        )
    )


def pack_json(data: Any) -> str:
    """JSON of the data, compressed and in base64: a tenth of the size, and no character that HTML
    knows.
    """
    # `allow_nan=False`: a NaN would be refused by the browser's JSON.parse, and the whole page
    # would stay empty.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    # `mtime=0`: the same report gives the same bytes, which tests/report/test_deterministic.py
    # holds.
    return base64.b64encode(gzip.compress(text, 6, mtime=0)).decode()


@cache
def _join_assets(names: tuple[str, ...]) -> str:
    """The text of some files of `assets/`, joined."""
    return "\n".join(read_asset(name).rstrip() for name in names)


def _csp_hash(text: str) -> str:
    """The hash of a text as a source of the Content-Security-Policy, which lets exactly this text
    run.
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def notebook_frame(page: str, title: str) -> str:
    """The HTML of a frame that shows a page in a notebook, without access to the notebook."""
    return (
        # Without "allow-same-origin" the frame can't reach the notebook, its cookies or its
        # kernel.
        f'<iframe sandbox="allow-scripts" srcdoc="{escape(page)}" title="{escape(title)}"'
        ' width="100%" height="640" style="border: 1px solid #8886; border-radius: 6px; resize:'
        ' vertical"></iframe>'
    )
