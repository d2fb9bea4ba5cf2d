"""Writes `llms.txt` into the site: every page of the table of contents with its title and one line, for assistants.

The form is that of llmstxt.org: a title, a summary, and a list of links for each section. It is made from the text of
the pages, not from the site that was built, so that a test can hold it against the table of contents without Sphinx.
Pages that the build writes itself have their line here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FILE_NAME = "llms.txt"
GENERATED_PAGES = {
    "rules/index": (
        "Rules",
        "All rules by the fault that they find, each with a page: what it finds, why it matters, how to fix it.",
    )
}
"""Title and line of pages that other extensions write before the build"""
MAX_LINE_CHARACTERS = 200
_TOCTREE = re.compile(r"^```\{toctree\}\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_INCLUDE = re.compile(r"^```\{include\} (?P<file>\S+)\n.*?^```$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^(```|:::).*?^\1$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[(?P<text>[^]]*)\]\([^)]*\)")
_NO_PROSE = re.compile(r"[#|>!<:]|[-*] |\d+\. |\(.*\)=$")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])|:$")


@dataclass(frozen=True, slots=True)
class _Section:
    """One table of contents: its caption and the names of its pages."""

    caption: str
    pages: tuple[str, ...]


def make_llms_txt(docs: Path) -> str:
    """Make the text of llms.txt.

    Args:
        docs: the folder of the pages, with index.md.

    Returns:
        Markdown: title, summary, and for each table of contents one line for each page.

    Raises:
        ValueError: a page of the table of contents is missing, or has no title.
    """
    title, summary = _title_and_line(docs, "index")
    parts = [f"# {title}\n\n> {summary}\n"]
    for section in _sections_of_page(docs, "index"):
        lines = "\n".join(_lines_of_pages(docs, section.pages))
        parts.append(f"## {section.caption}\n\n{lines}\n")
    return "\n".join(parts)


def _lines_of_pages(docs: Path, names: tuple[str, ...]) -> Iterator[str]:
    """One line for each page, and for those below it."""
    for name in names:
        title, line = _title_and_line(docs, name)
        yield f"- [{title}]({name}.html)" + (f": {line}" if line else "")
        for section in _sections_of_page(docs, name):
            yield from _lines_of_pages(docs, section.pages)


def _sections_of_page(docs: Path, name: str) -> Iterator[_Section]:
    """The tables of contents of a page, in their order."""
    if name in GENERATED_PAGES:
        return
    folder = Path(name).parent
    for found in _TOCTREE.finditer((docs / f"{name}.md").read_text(encoding="utf-8")):
        lines = [line.strip() for line in found["body"].splitlines() if line.strip()]
        options = dict(line[1:].partition(":")[::2] for line in lines if line.startswith(":"))
        pages = tuple((folder / line).as_posix() for line in lines if not line.startswith(":"))
        yield _Section(options.get("caption", "").strip(), pages)


def _title_and_line(docs: Path, name: str) -> tuple[str, str]:
    """The title of a page, and its first sentence, else what its sections are called. Raises
    ValueError.
    """
    if name in GENERATED_PAGES:
        return GENERATED_PAGES[name]
    page = docs / f"{name}.md"
    if not page.is_file():
        raise ValueError(f"{page}: the table of contents names it, and it is not there")
    text = page.read_text(encoding="utf-8")
    included = _INCLUDE.search(text)
    if included:
        text = (page.parent / included["file"]).read_text(encoding="utf-8")
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    if title is None:
        raise ValueError(f"{page}: has no title; begin it with `# `")
    # Guides all have the same headings; the text below the first one is the symptom.
    below = _FENCE.sub("", text[title.end() :]).replace("\n## What you see\n", "\n", 1)
    return _as_plain(title[1]), _first_sentence(below) or _headings_in_a_line(below)


def _first_sentence(text: str) -> str:
    """The first sentence of the first paragraph; empty where a heading or a table comes first."""
    for block in re.split(r"\n\s*\n", text.strip()):
        if block.startswith("#"):
            return ""
        if block and not _NO_PROSE.match(block):
            sentence = _SENTENCE_END.split(_as_plain(block), maxsplit=1)[0]
            if len(sentence) <= MAX_LINE_CHARACTERS:
                return sentence
            return f"{sentence[:MAX_LINE_CHARACTERS].rpartition(' ')[0]} ..."
    return ""


def _headings_in_a_line(text: str) -> str:
    """The headings of the sections of a page, as many as a line holds."""
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    line = ""
    for heading in map(_as_plain, headings):
        longer = f"{line}; {heading}" if line else heading
        if len(longer) > MAX_LINE_CHARACTERS:
            break
        line = longer
    return line


def _as_plain(text: str) -> str:
    """Markdown on one line, with the text of links alone."""
    return " ".join(_LINK.sub(r"\g<text>", text).split())


def write_llms_txt(app: Sphinx, exception: Exception | None) -> None:
    """Write the file into the site that was built."""
    if exception is None and app.builder.name == "html":
        path = Path(app.outdir) / FILE_NAME
        path.write_text(make_llms_txt(Path(app.srcdir)), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("build-finished", write_llms_txt)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
