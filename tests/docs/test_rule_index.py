"""The index of rules: its search and filters work from a file, by keyboard, and on a phone."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser import PHONE, chromium, opened, violations
from truetune.checks.faults import Fault
from truetune.checks.rule_catalogue import all_rules

DOCS = Path(__file__).parents[2] / "docs"
RULES = all_rules()
PAGE_SIZE = 25
# What the theme gives: the colours of both schemes, by its own names.
STYLE = """<style>
:root { color-scheme: light dark; --color-background-primary: light-dark(#fff, #131416);
  --color-foreground-primary: light-dark(#000, #cfd0d0); --color-foreground-muted: light-dark(#646776, #81868d);
  --color-background-border: light-dark(#eee, #303335); --color-brand-primary: light-dark(#0a4bff, #3d94ff); }
body { background: var(--color-background-primary); color: var(--color-foreground-primary); }
a { color: var(--color-brand-primary); }
</style>"""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index as a file, beside the script and the style of the site."""
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        families = import_module("rule_families").families_of_rules()
        markdown = import_module("rule_index").rule_index(families)
    finally:
        sys.path.pop(0)
    html = re.search(r"^```\{raw\} html\n(.*?)^```$", markdown, re.M | re.S)
    assert html is not None
    folder = tmp_path_factory.mktemp("site")
    for name in ("rules", "_static"):
        (folder / name).mkdir()
    for name in ("site.css", "rule_index.js"):
        copy(DOCS / "_static" / name, folder / "_static")
    page = folder / "rules" / "index.html"
    page.write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Rules</title>'
        '<meta name="viewport" content="width=device-width">'
        f'<link rel="stylesheet" href="../_static/site.css">{STYLE}</head>'
        f"<body><main><article><h1>Rules</h1>{html[1]}</article></main></body></html>",
        encoding="utf-8",
    )
    return page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def shown_names(page: Page) -> list[str]:
    return page.locator(".rule-list > li:visible a").all_inner_texts()


def test_without_a_script_all_rules_are_listed(index: Path) -> None:
    text = index.read_text(encoding="utf-8")
    assert text.count("<li ") == len(RULES)
    for rule in RULES:
        assert f'<a href="{rule.name()}.html">{rule.name()}</a>' in text


def test_rules_are_shown_some_at_a_time(index: Path, browser: Browser) -> None:
    with opened(browser, index) as page:
        first = shown_names(page)
        assert len(first) == PAGE_SIZE
        page.locator("#rule-previous").focus()
        page.keyboard.press("Enter")
        assert shown_names(page) == first
        page.locator("#rule-next").focus()
        page.keyboard.press("Enter")
        second = shown_names(page)
        assert len(second) == PAGE_SIZE
        assert not set(first) & set(second)
        assert "page=2" in page.url
        page.go_back()
        page.get_by_text("Page 1 of").wait_for()
        assert shown_names(page) == first


def test_filters_stand_in_the_address(index: Path, browser: Browser) -> None:
    with opened(browser, index) as page:
        page.locator("#rule-words").focus()
        page.keyboard.type("pad token")
        page.keyboard.press("Tab")
        page.keyboard.type("TOK")
        address, names = page.url, shown_names(page)
        assert "words=pad+token" in address
        assert "family=TOK" in address
        assert names[0] == "pad-is-stop-token"
        assert page.locator("#rule-count").inner_text() == f"{len(names)} of {len(RULES)} rules"
    with opened(browser, f"{index.as_uri()}#{address.partition('#')[2]}") as page:
        assert shown_names(page) == names
        assert page.locator("#rule-words").input_value() == "pad token"
        page.get_by_role("button", name="Clear").click()
        assert len(shown_names(page)) == PAGE_SIZE
        assert page.locator("#rule-words").input_value() == ""


@pytest.mark.parametrize("name", ["severity", "stability"])
def test_each_value_of_a_filter(index: Path, browser: Browser, name: str) -> None:
    with opened(browser, index) as page:
        options = page.locator(f"#rule-{name} option").evaluate_all("all => all.map(o => o.value)")
        for value in filter(None, options):
            page.locator(f"#rule-{name}").select_option(value)
            count = sum(getattr(rule, name) == value for rule in RULES)
            assert page.locator("#rule-count").inner_text() == f"{count} of {len(RULES)} rules"


def test_rules_stand_below_their_fault(index: Path, browser: Browser) -> None:
    rules = [rule.name() for rule in RULES if rule.fault is Fault.PROMPTS_IN_LOSS]
    with opened(browser, f"{index.as_uri()}#fault=prompts-in-loss") as page:
        assert shown_names(page) == rules
        headings = page.locator(".rule-fault:visible h2").all_inner_texts()
        assert headings == [Fault.PROMPTS_IN_LOSS.title]
        page.locator("#rule-fault").select_option("bos-missing")
        assert "fault=bos-missing" in page.url
        assert page.locator(".rule-fault:visible h2").all_inner_texts() == [Fault.BOS_MISSING.title]


def test_severity_is_that_under_the_trainer(index: Path, browser: Browser) -> None:
    with opened(browser, f"{index.as_uri()}#family=TOK&trainer=trl") as page:
        rule = page.locator("li", has=page.get_by_text("pad-is-stop-token", exact=True))
        assert rule.locator(".rule-severity").inner_text() == "info"
        # TRL pads on the right whatever the tokenizer says.
        assert "tokenizer-pads-on-the-left" not in shown_names(page)
        page.locator("#rule-trainer").select_option("")
        assert rule.locator(".rule-severity").inner_text() == "error"
        assert "tokenizer-pads-on-the-left" in shown_names(page)


def test_words_that_no_rule_has(index: Path, browser: Browser) -> None:
    with opened(browser, f"{index.as_uri()}#words=%3Cb%3Eqqxzv&page=7") as page:
        assert shown_names(page) == []
        assert page.locator("#rule-count").inner_text() == f"0 of {len(RULES)} rules"
        assert not page.locator("#rule-paging").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_has_nothing_to_say(index: Path, browser: Browser, scheme: str) -> None:
    # Not `opened`: axe asks for the style sheets again, which a browser refuses a page from a file.
    options: dict[str, Any] = {"color_scheme": scheme}
    context = browser.new_context(**options)
    page = context.new_page()
    page.goto(index.as_uri())
    assert shown_names(page)
    assert not violations(page)
    context.close()


def test_nothing_is_cut_on_a_phone(index: Path, browser: Browser) -> None:
    with opened(browser, index, viewport=PHONE) as page:
        for number in range(1, -(-len(RULES) // PAGE_SIZE) + 1):
            page.evaluate(f"location.hash = '#page={number}'")
            page.wait_for_function(
                f"document.getElementById('rule-page').textContent.startsWith('Page {number} ')"
            )
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], number
