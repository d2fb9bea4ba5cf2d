"""Findings in the row list: marked, named, filtered, in page and `truetune view`; one numbering everywhere."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
from playwright.sync_api import Browser, Page, expect
from pyarrow import parquet

import truetune
from tests.browser import DESK, PHONE, chromium, opened, violations
from tests.viewing.conftest import serving
from truetune.checks.reports import Report
from truetune.demo import TOKENIZER
from truetune.errors import UsageError
from truetune.fixing.fix_file import fix_data_file
from truetune.report.as_json import report_as_dict
from truetune.report.cited_rows_as_jsonl import cited_rows_as_jsonl
from truetune.report.page import html_page_of_report
from truetune.report.page.mark_cited_rows import rules_and_cases_that_cite_rows
from truetune.report.sarif import report_as_sarif
from truetune.settings.run_spec import RunSpec
from truetune.viewing.view import marks_of_report_for_data

Chat = dict[str, Any]
EVIL = "<img src=x onerror=alert(1)>\"' </script>\u202e"


def chat(question: Any, answer: Any, role: str = "assistant") -> Chat:
    return {"messages": [{"role": "user", "content": question}, {"role": role, "content": answer}]}


def checked(*paths: Path, **settings: Any) -> Report:
    return truetune.check(data=[str(path) for path in paths], tokenizer=str(TOKENIZER), **settings)


@cache
def checked_once(path: Path) -> Report:
    """The same report for each test that only reads it."""
    return checked(path)


@cache
def page_made_once(path: Path) -> str:
    """The page of that report."""
    return html_page_of_report(checked_once(path))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,400 rows, of which 500 have a fault of five kinds, the last near the end."""
    rows = [chat(f"Is house {i} open?", f"House {i} is open until nine.") for i in range(2400)]
    for number in range(500):
        place = 2399 - number * 4
        question, answer = f"Is hut {place} open?", f"Hut {place} is open."
        rows[place] = (
            chat(7, answer),
            chat(question, f"{answer} <|im_end|> x"),
            chat(question, answer, "bot"),
            chat(question, ""),
            chat(question, answer, EVIL),
        )[number % 5]
    path = tmp_path_factory.mktemp("many") / "chats.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _unfold_filters(view: Page) -> None:
    """On a phone the filters are folded."""
    view.evaluate("document.querySelector('.filterfold').open = true")


def entries(view: Page) -> list[str]:
    return view.locator(".entry b").all_text_contents()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESK, PHONE])
def test_rows_with_findings_are_marked_and_listed(
    browser: Browser, many: Path, tmp_path: Path, viewport: dict[str, int], scheme: str
) -> None:
    report = checked_once(many)
    html = page_made_once(many)
    assert len(html) < 4_000_000
    cited = {
        case.origin.row for f in report.findings for case in f.cases if case.origin is not None
    }
    assert len(cited) >= 500
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    with opened(browser, tmp_path / "page.html", viewport=viewport, color_scheme=scheme) as view:
        choice = view.get_by_role("combobox", name="finding")
        _unfold_filters(view)
        choice.select_option("any")
        expect(view.locator("[data-selection]")).to_contain_text(f"{len(cited):,} of ")
        assert view.locator(".entry").first.get_attribute("aria-setsize") == str(len(cited))
        for finding in report.findings:
            rows = sorted({case.origin.row for case in finding.cases if case.origin is not None})
            if not rows:
                continue
            choice.select_option(
                choice.locator("option").filter(has_text=finding.code).get_attribute("value")
            )
            expect(view.locator("[data-selection]")).to_contain_text(
                re.compile(rf"^{len(rows):,} of .*with {finding.code}")
            )
            assert entries(view)[0] == f"row {rows[0]:,}"
            expect(view.locator(".entry .mark").first).to_be_visible()
            view.locator(".list").focus()
            view.keyboard.press("End")
            expect(view.locator("[data-title]")).to_contain_text(f"row {rows[-1]:,} · ")
            marks = view.get_by_role("list", name="Findings on this row")
            expect(marks).to_contain_text(f"{finding.severity} {finding.code}")
            expect(marks).to_contain_text(finding.rule)
        choice.select_option("")
        assert violations(view) == []
        assert view.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_keys_stay_in_the_list_that_is_chosen(browser: Browser, many: Path, tmp_path: Path) -> None:
    report = checked_once(many)
    (tmp_path / "page.html").write_text(page_made_once(many), encoding="utf-8")
    rows = sorted(
        {
            case.origin.row
            for f in report.findings
            if f.code == "ROW009"
            for case in f.cases
            if case.origin
        }
    )
    with opened(browser, tmp_path / "page.html") as view:
        choice = view.get_by_role("combobox", name="finding")
        choice.select_option(
            choice.locator("option").filter(has_text="ROW009").get_attribute("value")
        )
        view.locator(".list").focus()
        for key, row in (
            ("Home", rows[0]),
            ("ArrowDown", rows[1]),
            ("j", rows[2]),
            ("k", rows[1]),
            ("ArrowUp", rows[0]),
        ):
            view.keyboard.press(key)
            expect(view.locator("[data-title]")).to_contain_text(f"row {row:,} · ")
        mark = view.locator(".entry").first.locator(".mark").first
        assert mark.get_attribute("aria-label") == "error ROW009 special-token-in-content"
        view.locator("[data-marks] a").nth(1).click()
        assert view.locator(".t[tabindex]").text_content() == "<|im_end|>"


def test_view_marks_the_rows_of_a_report(browser: Browser, many: Path) -> None:
    result = report_as_dict(checked(many))
    cited = {
        case["row"]
        for finding in result["findings"]
        for case in finding["cases"]
        if case["row"] is not None
    }
    with serving(many, result=result) as server, opened(browser, server.url) as view:
        choice = view.get_by_role("combobox", name="finding")
        _unfold_filters(view)
        choice.select_option("any")
        expect(view.locator("[data-selection]")).to_contain_text(f"{len(cited):,} of ")
        view.locator(".list").focus()
        view.keyboard.press("End")
        expect(view.locator("[data-title]")).to_contain_text(f"row {max(cited):,} · ")
        expect(view.locator("[data-marks] li").first).to_be_visible()
        expect(view.locator(f".entry[data-k='{max(cited)}'] .mark").first).to_be_visible()
        assert violations(view) == []


def test_a_report_on_other_data_is_refused(many: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps(chat("a", "b")) + "\n")
    result = report_as_dict(checked(other))
    with pytest.raises(
        UsageError, match=r"the report is on .*other\.jsonl, and not on .*chats\.jsonl"
    ):
        marks_of_report_for_data(RunSpec(data=(str(many),), tokenizer=str(TOKENIZER)), result)


def test_a_row_that_the_template_refuses_is_shown_with_what_it_raised(
    browser: Browser, tmp_path: Path
) -> None:
    template = tmp_path / "t.jinja"
    template.write_text(
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no <b>system</b>"
        " role') }}{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    data = tmp_path / "a.jsonl"
    bad = {"messages": [{"role": "system", "content": EVIL}, *chat("a", "b")["messages"]]}
    data.write_text(
        "".join(json.dumps(row) + "\n" for row in (chat("a", "b"), bad)), encoding="utf-8"
    )
    report = checked(data, template=str(template))
    (tmp_path / "page.html").write_text(html_page_of_report(report), encoding="utf-8")
    with opened(browser, f"{(tmp_path / 'page.html').as_uri()}#row=1") as view:
        expect(view.locator("[data-amiss]")).to_contain_text("no <b>system</b> role")
        raw = view.locator("[data-raw]").text_content() or ""
        assert json.loads(raw) == bad
        assert view.locator("[data-marks] .mark").first.text_content() == "error TPL011"


def _jsonl(path: Path) -> None:
    """Blank lines, and lines that hold no row."""
    lines = [
        "",
        json.dumps(chat("a", "b")),
        "",
        "{broken",
        json.dumps(chat("c", "d <|im_end|> e")),
        "[1]",
        "",
        json.dumps(chat(5, "g")),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _csv(path: Path) -> None:
    """Fields with line ends in them."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["instruction", "output"])
        writer.writerow(["two\nlines\n", "b"])
        writer.writerow(["c", 'd "quoted"\n<|im_end|>'])
        writer.writerow(["e\n\nf", "g <|im_end|> h"])


def _parquet(path: Path) -> None:
    rows = [chat(f"q {i}", f"a {i}" + " <|im_end|> x" * (i in (3, 700))) for i in range(900)]
    parquet.write_table(
        arrow.table({"messages": [row["messages"] for row in rows]}), path, row_group_size=256
    )


def _json(path: Path) -> None:
    path.write_text(
        json.dumps([chat("a", "b"), chat("c", "d <|im_end|> e")], indent=2), encoding="utf-8"
    )


FORMS = {"rows.jsonl": _jsonl, "rows.csv": _csv, "rows.parquet": _parquet, "rows.json": _json}


@pytest.mark.parametrize(
    "names", [*((name,) for name in FORMS), tuple(FORMS), ("rows.parquet", "rows.jsonl")]
)
def test_one_numbering_of_rows_everywhere(names: tuple[str, ...], tmp_path: Path) -> None:
    """Of each case: the same row and line in JSON, SARIF, --rows-out, the page, the view, show and fix."""
    for name in names:
        FORMS[name](tmp_path / name)
    paths = [tmp_path / name for name in names]
    report = checked(*paths)
    result = report_as_dict(report)
    places = {
        (case["file"], case["line"], case["row"])
        for f in result["findings"]
        for case in f["cases"]
        if case["file"]
    }
    assert len(places) >= len(names)
    assert _of_rows_out(report) == places
    assert _of_sarif(report) == {(Path(file).name, line) for file, line, _ in places}
    assert _of_marks(result) == {(file, row) for file, _, row in places}
    _view_agrees(paths, places)
    if len(names) == 1:
        _fix_agrees(paths[0], places)


def _of_rows_out(report: Report) -> set[tuple[str, int, int]]:
    rows = [json.loads(line) for line in cited_rows_as_jsonl(report).splitlines()]
    return {(row["file"], row["line"], row["row"]) for row in rows}


def _of_sarif(report: Report) -> set[tuple[str, int]]:
    found = set()
    for part in json.loads(report_as_sarif(report))["runs"][0]["results"]:
        for location in part.get("locations", []):
            physical = location["physicalLocation"]
            if line := physical.get("region", {}).get("startLine"):
                found.add((Path(physical["artifactLocation"]["uri"]).name, line))
    return found


def _of_marks(result: dict[str, Any]) -> set[tuple[str, int]]:
    return {(case[0], case[1]) for case in rules_and_cases_that_cite_rows(result)["cases"]}


def _view_agrees(paths: list[Path], places: set[tuple[str, int, int]]) -> None:
    wanted = sorted(row for _, _, row in places)
    made = truetune.view([str(path) for path in paths], str(TOKENIZER), rows=wanted)
    assert {(row["file"], row["line"], row["row"]) for row in made.rows} == places


def _fix_agrees(path: Path, places: set[tuple[str, int, int]]) -> None:
    fixed = path.with_name(f"fixed{path.suffix}")
    fix_data_file(RunSpec(data=(str(path),), tokenizer=str(TOKENIZER)), str(fixed), unsafe=True)
    lines = [
        json.loads(line) for line in Path(f"{fixed}.changes.jsonl").read_text().splitlines()[1:-1]
    ]
    assert lines
    assert {(line["line"], line["row"]) for line in lines} <= {
        (line, row) for _, line, row in places
    }


def test_findings_on_evaluation_rows_mark_no_row_of_the_data(tmp_path: Path) -> None:
    held_out, data = tmp_path / "held-out.jsonl", tmp_path / "data.jsonl"
    rows = [chat(f"Is house {i} open?", f"House {i} is open until nine.") for i in range(20)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    held_out.write_text(json.dumps(rows[7]) + "\n", encoding="utf-8")
    result = report_as_dict(checked(data, eval_data=str(held_out)))
    assert "train-eval-leak" in [finding["rule"] for finding in result["findings"]]
    spec = RunSpec(data=(str(data),), tokenizer=str(TOKENIZER))
    marks = marks_of_report_for_data(spec, result)
    assert {case[0] for case in marks["cases"]} <= {str(data)}
    assert "train-eval-leak" not in {marks["rules"][case[2]]["rule"] for case in marks["cases"]}


def test_a_mark_says_that_its_finding_has_more_places() -> None:
    case = {"file": "a.jsonl", "row": 3, "text": "x"}
    finding = {"code": "ROW001", "rule": "r", "severity": "error", "cases": [case]}
    counts = [{**finding, "count": 1}, {**finding, "count": 9}]
    marks = rules_and_cases_that_cite_rows({"findings": counts})
    assert [rule["has_more"] for rule in marks["rules"]] == [False, True]
