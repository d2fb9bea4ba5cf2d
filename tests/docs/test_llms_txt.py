"""llms.txt names each page of the table of contents once, with its title and a line."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
make_llms_txt = runpy.run_path(str(DOCS / "_ext" / "llms_txt.py"))["make_llms_txt"]


def test_each_page_has_one_line() -> None:
    text = make_llms_txt(DOCS)
    links = re.findall(r"^- \[(.+)\]\((\S+)\.html\)(: .+)?$", text, re.MULTILINE)
    names = [name for _, name, _ in links]
    assert len(names) == len(set(names))
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")}
    written = {name for name in pages if not name.startswith(("rules/", "_"))} - {"index"}
    assert set(names) == written | {"rules/index"}
    assert all(title for title, _, _ in links)
    assert text.startswith("# truetune\n\n> A linter, auditor and test harness")
    assert len(text.splitlines()) == len(links) + 3 * text.count("\n## ") + 3


def test_most_pages_say_what_they_are_about() -> None:
    lines = re.findall(r"^- \[.+\]\(\S+\)(: .+)?$", make_llms_txt(DOCS), re.MULTILINE)
    assert sum(bool(line) for line in lines) > 0.9 * len(lines)
    assert max(map(len, lines)) < 220


def test_a_page_that_is_not_there_is_said(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("# it\n\nWhat it is.\n\n```{toctree}\nlost\n```\n")
    with pytest.raises(ValueError, match=r"lost\.md: the table of contents names it"):
        make_llms_txt(tmp_path)


def test_sections_links_and_long_lines(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text(
        "# it\n\nWhat it is.\n\n```{toctree}\n:caption: Part\n:hidden:\n\none\ntwo\n```\n"
    )
    (tmp_path / "one.md").write_text("# One\n\nSee [here](two.md). More.\n")
    (tmp_path / "two.md").write_text(f"# Two\n\n{'word ' * 100}\n")
    assert make_llms_txt(tmp_path) == (
        "# it\n\n> What it is.\n\n## Part\n\n- [One](one.html): See here.\n"
        f"- [Two](two.html): {'word ' * 40}...\n"
    )
