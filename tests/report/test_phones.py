"""On a phone no word of a page is cut off: tables that are too wide become cards, one a row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser import DESK, PHONE, chromium, cut_words, opened, violations
from tests.report.runs import write_run
from tests.report.test_audited import audited
from tests.report.test_every_command import CONFIG, run
from tests.report.test_run_page import TEXTS, sampled
from truetune.report.page import html_page_of_report


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


def write_audit(folder: Path) -> Path:
    page = folder / "audit.html"
    page.write_text(html_page_of_report(audited(["How many figs?", "Nine"])), encoding="utf-8")
    return page


def write_plan(folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    limits = ("--gpu", "0.5GB", "--max-length", "512")
    run("plan", folder / "config.json", *limits, "--html", folder / "plan.html")
    return folder / "plan.html"


def write_answers(folder: Path) -> Path:
    page = folder / "answers.html"
    page.write_text(html_page_of_report(sampled(TEXTS)), encoding="utf-8")
    return page


def write_run_page(folder: Path) -> Path:
    run("report", write_run(folder / "outputs"), "-o", folder / "run.html")
    return folder / "run.html"


@pytest.mark.parametrize("write", [write_audit, write_plan, write_answers, write_run_page])
def test_no_word_is_cut_off(
    browser: Browser, tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    with opened(browser, write(tmp_path), viewport=PHONE) as page:
        page.evaluate("document.querySelectorAll('details').forEach((fold) => (fold.open = true))")
        page.wait_for_timeout(100)
        assert cut_words(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert violations(page) == []


def test_a_card_names_each_value_and_a_wide_window_has_the_table(
    browser: Browser, tmp_path: Path
) -> None:
    with opened(browser, write_audit(tmp_path), viewport=PHONE) as page:
        laws = page.locator("#laws .scroll").first
        assert laws.evaluate("(box) => box.classList.contains('cards')")
        assert laws.locator("tbody tr").first.locator("td").evaluate_all(
            "(cells) => cells.map((cell) => getComputedStyle(cell, '::before').content)"
        ) == ['"verdict"', '"measured"', '"tolerance"', '"margin"', '"what was compared"']
        assert laws.get_by_role("row").count() == laws.locator("tr").count()
        page.set_viewport_size(DESK)
        page.wait_for_timeout(100)
        assert not laws.evaluate("(box) => box.classList.contains('cards')")
