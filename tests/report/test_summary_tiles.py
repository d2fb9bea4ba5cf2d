"""The headline of a page is short and honest, and its tiles have the figures of the report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import truetune
from tests.browser import DESK, PHONE, chromium, cut_words, opened, violations
from truetune.checks.reports import DataReport
from truetune.demo import BROKEN, DATA, TOKENIZER
from truetune.report.as_json import report_as_dict
from truetune.report.page import html_page_of_json, html_page_of_report
from truetune.report.page.summary_tiles import Tile, make_headline, make_tiles

CASE = {"file": "a.jsonl", "row": 3}
ERROR = {"severity": "error", "cases": [CASE, CASE], "count": 2}
WARNING = {"severity": "warning", "cases": [CASE, CASE | {"row": 4}], "count": 2}
NOTE = {"severity": "info", "cases": [CASE | {"row": 9}], "count": 1}
ON_SETTINGS = {"severity": "error", "cases": [], "count": 1}
FINE = {"rule": "r", "code": "R1"}
ASKED = {"what": "x", "reason": "y", "asked": True, "unlock": None}


def result(*findings: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"findings": list(findings), "examined": [FINE], "not_judged": [], "rows": 10} | more


def tile(name: str, tiles: list[Tile]) -> Tile:
    (found,) = (one for one in tiles if one.name == name)
    return found


@pytest.mark.parametrize(
    ("given", "text", "kind"),
    [
        (result(ERROR, WARNING, WARNING), "1 error, 2 warnings", "error"),
        (result(WARNING, NOTE), "1 warning", "warning"),
        (result(ERROR, not_judged=[ASKED]), "1 error, 1 not judged", "error"),
        (result(outcome="no findings"), "No findings in 10 rows", "fine"),
        (result(known=["a"], outcome="no findings"), "No new findings in 10 rows", "fine"),
        (result(NOTE, outcome="no findings"), "Only 1 note in 10 rows", "fine"),
        (result(rows=None, outcome="no findings"), "No findings in 1 check", "fine"),
        (result(outcome="not judged", not_judged=[ASKED]), "Not judged", "open"),
        (result(examined=[]), "Not judged", "open"),
        (
            result(runs=[{"looks": []}], outcome="no findings"),
            "Nothing found in the curves",
            "fine",
        ),
        (result(failed=True, summary="It does not fit: 9 GiB"), "Failed", "error"),
        ({"summary": "It does not fit: 9 GiB", "failed": True}, "It does not fit", "error"),
        ({"summary": "9 of 10 tokens (90.0 %) in 2 rows are learned"}, "Done", "fine"),
    ],
)  # fmt: skip
def test_headlines(given: dict[str, Any], text: str, kind: str) -> None:
    headline = make_headline(given)
    assert (headline.text, headline.kind) == (text, kind)
    assert len(text.split()) <= 6


def test_nothing_judged_has_no_nought() -> None:
    given = result(outcome="not judged", not_judged=[ASKED], examined=[])
    assert tile("errors", make_tiles(given)).value == "–"
    rows = tile("rows with findings", make_tiles(given))
    assert (rows.value, rows.note, rows.kind) == ("–", "not judged", "")


def test_known_findings_are_not_passed_over() -> None:
    given = result(known=["a"], outcome="no findings")
    assert tile("errors", make_tiles(given)).note == "0 warnings, 1 known finding left out"
    assert tile("rows with new findings", make_tiles(given)).value == "0"


def test_evaluation_rows_are_not_counted_among_the_rows_of_the_data() -> None:
    report = truetune.check(data=str(DATA), eval_data=str(BROKEN), tokenizer=str(TOKENIZER))
    rows = tile("rows with findings", make_tiles(report_as_dict(report)))
    assert rows.note == "in 200 rows and the evaluation data"


def test_rows_are_those_that_errors_and_warnings_name() -> None:
    tiles = make_tiles(result(ERROR, WARNING, NOTE))
    assert tile("error", tiles).note == "1 warning, 1 note"
    assert tile("rows with findings", tiles) == Tile(
        "rows with findings", "2", "of 10 rows judged", "error", "#findings"
    )
    more = make_tiles(result(ERROR | {"count": 90}))
    assert tile("row with findings", more).value == "1+"
    assert tile("rows with findings", make_tiles(result(ON_SETTINGS))).value == "–"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_length": 512},
        {"max_length": 64, "trainer": "trl"},
        {"trainer": "axolotl", "max_length": 512},
        {"learn": {"what": "all"}},
    ],
)
def test_the_tile_has_the_number_of_the_sentence(settings: dict[str, Any]) -> None:
    report = truetune.check(data=str(BROKEN), tokenizer=str(TOKENIZER), **settings)
    plain = report_as_dict(report)
    of = re.search(r"[\d,]+ of [\d,]+ tokens", plain["verdict"])
    assert of is not None
    assert tile("learned", make_tiles(plain)).note.startswith(of[0])


@pytest.mark.parametrize(("theme", "size"), [("light", PHONE), ("dark", DESK)])
def test_in_a_browser(broken: DataReport, tmp_path: Path, theme: str, size: dict[str, int]) -> None:
    path = tmp_path / "page.html"
    path.write_text(html_page_of_report(broken), encoding="utf-8")
    with (
        chromium() as browser,
        opened(browser, path, viewport=size, color_scheme=theme) as page,
    ):
        assert page.inner_text(".headline") == "4 errors, 5 warnings"
        names = page.locator(".tile-name").all_inner_texts()
        assert names == ["learned", "errors", "rows with findings"]
        labels = [text for text in page.locator(".bar-part").all_inner_texts() if text.strip()]
        assert any("assistant content" in label for label in labels)
        page.evaluate("document.querySelectorAll('details').forEach((fold) => (fold.open = true))")
        assert cut_words(page) == []
        assert violations(page) == []
        for name in page.locator("summary").all_inner_texts():
            assert len(name.split()) >= 4, f"{name!r} does not say what is inside"
        page.locator(".tile a").first.click()
        assert page.url.endswith("#findings")


def test_a_clean_set_says_so() -> None:
    report = truetune.check(data=str(DATA), tokenizer=str(TOKENIZER))
    text = html_page_of_json(json.loads(json.dumps(report_as_dict(report))))
    assert '<p class="headline fine">No findings in 200 rows</p>' in text
