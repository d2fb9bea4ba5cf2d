"""What the theme leaves undone for keyboards and screen readers."""

from __future__ import annotations

import re
from pathlib import Path

from sphinx.application import Sphinx

MENDED = {
    'role="heading">': 'role="heading" aria-level="2">',
    "<pre>": '<pre tabindex="0">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Pages">',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
}
PARAMETERS = re.compile(r'(?s)(?<=<span class="sig-paren">\(</span>)\s*<dl>(.*?)</dl>')
"""Of a signature over several lines: a list of definitions without a term"""


def correct_pages(app: Sphinx, exception: Exception | None) -> None:
    """Each page: captions are headings of a level, wide code can be scrolled by keys, landmarks have names."""
    if exception is None and app.builder.name == "html":
        for path in Path(app.outdir).rglob("*.html"):
            was = text = path.read_text(encoding="utf-8")
            for before, after in MENDED.items():
                text = text.replace(before, after)
            text = PARAMETERS.sub(_lines, text)
            if text != was:
                path.write_text(text, encoding="utf-8")


def _lines(found: re.Match[str]) -> str:
    return f'<span class="sig-lines">{found[1].replace("<dd>", "<span>").replace("</dd>", "</span>")}</span>'


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("build-finished", correct_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
