"""The documentation site is built without a warning, and is whole."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import truetune
from tests.browser import PHONE, chromium, violations
from tests.docs import site
from truetune.checks.rule_catalogue import all_rules
from truetune.checks.rule_catalogue import rule_page as source
from truetune.checks.rule_families import former_names
from truetune.cli import truetune_group
from truetune.report.rule_pages.read_example import AFTER
from truetune.report.rule_pages.rule_page_for_readers import shown_heading

pytest.importorskip("furo")


@pytest.mark.slow
def test_the_site(tmp_path: Path) -> None:
    """Built once, since Sphinx takes half a minute for a page of each rule and of each public name."""
    made = site.build(tmp_path)
    assert made.returncode == 0, made.stderr[-4000:]
    root = (tmp_path / "site").resolve()
    pages = site.pages(root)
    assert not site.loaded_from_outside(root, pages)
    assert not site.broken_links(root, pages)
    assert not [path for path, page in pages.items() if not page.title]
    every_rule_has_its_page(root, pages)
    names_are_documented(root, pages)
    a_browser_is_content(root)


def every_rule_has_its_page(root: Path, pages: dict[Path, site.Page]) -> None:
    index = pages[root / "rules" / "index.html"].text
    for rule in all_rules():
        page = pages[root / "rules" / f"{rule.name()}.html"]
        assert page.title.startswith(f"{rule.name()} ")
        assert {
            "what-it-does",
            "why-it-is-bad",
            "example",
            "what-truetune-prints",
            shown_heading(rule, AFTER).lower().replace(" ", "-"),
            "how-sure-it-is",
            "references",
        } <= page.anchors, page.path
        assert rule.code in page.text
        assert f'href="{rule.name()}.html"' in index
        for thread, number in re.findall(r"([\w.-]+/[\w.-]+)#(\d+)", source(rule)):
            assert f'href="https://github.com/{thread}/issues/{number}"' in page.text, page.path
        for word in (rule.code, *former_names(rule.name())):
            assert f"url={rule.name()}.html" in pages[root / "rules" / f"{word}.html"].text


def names_are_documented(root: Path, pages: dict[Path, site.Page]) -> None:
    reference = set().union(
        *(page.anchors for path, page in pages.items() if path.parent.name == "reference")
    )
    assert not {f"truetune.{name}" for name in truetune.__all__} - reference
    assert (
        not {f"truetune-{name}" for name in truetune_group.commands}
        - pages[root / "cli.html"].anchors
    )
    settings = pages[root / "reference" / "settings.html"].text
    assert not [name for name in truetune.RunSpec.model_fields if f">{name}" not in settings]


def a_browser_is_content(root: Path) -> None:
    """The search finds without a network, and axe has nothing to say."""
    with chromium() as browser:
        context = browser.new_context()
        page, asked = context.new_page(), list[str]()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{(root / 'search.html').as_uri()}?q=pad+stop+token")
        # The list is filled hit by hit, so the first of them says nothing; this one must come (else a TimeoutError).
        hits = page.locator("#search-results li a")
        hits.filter(has_text=re.compile("^pad-is-stop-token$")).first.wait_for()
        for name in (
            "index",
            "rules/index",
            "rules/pad-is-stop-token",
            "rules/turn-roles-unknown-to-template",
            "reference/reports",
        ):
            page.goto((root / f"{name}.html").as_uri())
            assert not violations(page), name
        page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
        for name in ("rules/index", "rules/loader-pads-uneven-rows", "rules/shortcut-loss"):
            page.goto((root / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
        assert not [url for url in asked if not url.startswith(("file:", "data:"))]
        context.close()


def test_the_figures_are_those_of_the_code() -> None:
    drawn = subprocess.run(
        [sys.executable, "docs/figures", "--check"], cwd=site.ROOT, capture_output=True, text=True
    )
    assert drawn.returncode == 0, f"{drawn.stdout}{drawn.stderr}; run `python docs/figures`"


def test_figures_say_what_they_show() -> None:
    for path in (site.ROOT / "docs" / "figures").glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        assert re.search(r"<title id=\"t\">.+</title><desc id=\"d\">.+</desc>", text), path
        assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize(
    "fault", ["[gone](gone.md)", "[gone](concepts.md#gone)", "![gone](gone.svg)"]
)
def test_the_checker_sees(tmp_path: Path, fault: str) -> None:
    """A broken link, a broken anchor, an image that is not there, as the site would have them."""
    target = re.sub(r".*\((.*)\)", r"\1", fault).replace(".md", ".html")
    (tmp_path / "concepts.html").write_text('<h1 id="ledger">x</h1>')
    (tmp_path / "a.html").write_text(f'<a href="concepts.html#ledger">x</a><img src="{target}">')
    assert site.broken_links(tmp_path, site.pages(tmp_path)) == [f"a.html: <img> {target}"]


def test_the_checker_sees_what_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="https://a.example/">x</a><script src="//b.example/x.js"></script>'
    )
    (tmp_path / "a.css").write_text(
        '@import "https://c.example/x.css"; p { background: url(https://d.example/) }'
    )
    said = site.loaded_from_outside(tmp_path, site.pages(tmp_path))
    assert [re.sub(r".*//(.)\.example.*", r"\1", line) for line in said] == ["b", "c", "d"]
