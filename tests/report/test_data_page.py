"""The Data section: its charts hold the report's figures, in both themes, on a phone, and for a screen reader."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser import DESK, PHONE, chromium, opened, violations
from tests.report.conftest import HOSTILE
from truetune.checks.check_data import add_token_views, check
from truetune.checks.reports import DataReport
from truetune.demo import TOKENIZER
from truetune.report.as_json import report_as_dict
from truetune.report.page import html_page_of_json, html_page_of_report
from truetune.report.page.data_section import data_section
from truetune.settings.read_truetune_settings import validate_settings

WORDS = tuple(
    f"{one}{two}" for one in ("sea", "law", "soup", "star", "bike", "song") for two in range(40)
)


@dataclass
class Drawn:
    """A chart as it stands in the page."""

    label: str
    titles: list[str]
    heights: list[float]
    marks: int
    links: list[str]


class Charts(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[Drawn] = []
        self.inside = self.title = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "svg":
            self.inside = True
            self.found.append(Drawn(values["aria-label"], [], [], 0, []))
        elif self.inside and tag == "title":
            self.title = True
            self.found[-1].heights.append(0.0)
        elif self.inside and tag == "rect" and values["class"] != "hit":
            self.found[-1].heights[-1] += float(values["height"])
        elif self.inside and tag == "line":
            self.found[-1].marks += 1
        elif self.inside and tag == "a":
            self.found[-1].links.append(values["href"])

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "svg"
        self.title = self.title and tag != "title"

    def handle_data(self, data: str) -> None:
        if self.title:
            self.found[-1].titles.append(data)


def charts(result: dict[str, Any]) -> dict[str, Drawn]:
    made = data_section(result)
    assert made is not None
    return {re.split("[;,]", chart.label)[0]: chart for chart in Charts(str(made.html)).found}


def html_of(result: dict[str, Any]) -> str:
    """The section on data, which this result must have."""
    section = data_section(result)
    assert section is not None
    return str(section.html)


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> DataReport:
    """600 rows of three sources, one after the other, the later the shorter; some stand twice, some in the evaluation
    data."""
    folder = tmp_path_factory.mktemp("grouped")
    rng = random.Random(8)
    rows = [
        {
            "source": ("web", "books", "</svg><script>")[i // 200],
            "messages": [
                {"role": "user", "content": f"What about number {i}?"},
                {"role": "assistant", "content": " ".join(rng.choices(WORDS, k=66 - i // 10))},
            ],
        }
        for i in range(600)
    ]
    rows[400] = rows[410] = rows[10]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "held.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:5]))
    data, held = str(folder / "rows.jsonl"), str(folder / "held.jsonl")
    settings = {"data": data, "eval_data": held, "tokenizer": str(TOKENIZER), "max_length": 128}
    return add_token_views(check(validate_settings(settings, "t")), 40)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> DataReport:
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    rows = [
        {
            "prompt": f"Is {i} a number?",
            "chosen": "It is. " * (1 + i % 4),
            "rejected": "It is not. " * (1 + i % 3),
            "chosen_score": i % 5,
            "rejected_score": 2,
        }
        for i in range(60)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return check(validate_settings({"data": str(path), "tokenizer": str(TOKENIZER)}, "t"))


def test_lengths_and_shares(grouped: DataReport) -> None:
    result = report_as_dict(grouped)
    drawn = charts(result)
    lengths = drawn["Length of examples"]
    counts = result["lengths"]["counts"]
    assert [
        int(count.replace(",", ""))
        for title in lengths.titles
        for count in re.findall(r"([\d,]+) examples?", title)[:1]
    ] == counts
    assert max(lengths.heights) == 100
    assert [bool(height) for height in lengths.heights] == [bool(count) for count in counts]
    assert lengths.marks == 1
    made = data_section(result)
    assert made is not None
    assert f"would shorten {result['lengths']['over']:,} of 600 examples" in made.html
    assert f"{result['lengths']['lost_supervised']:,} of them supervised" in made.html
    assert (
        len(drawn["Supervised share of each example"].titles)
        == len(result["data"]["shares"]["counts"]) + 2
    )


def test_order_shows_what_is_grouped(grouped: DataReport) -> None:
    result = report_as_dict(grouped)
    drawn = charts(result)
    sources = drawn["Sources along the file"]
    order = result["data"]["order"]
    assert len(sources.titles) == len(order["rows"])
    assert sources.titles[0].endswith("web 8")
    assert "rows 200 to 207: books 8" in sources.titles
    assert all(round(height) == 100 for height in sources.heights)
    viewed = sorted({view["row"] for view in result["views"]})
    assert sources.links == [
        f"#row={row}" for i, row in enumerate(viewed) if not i or row // 8 > viewed[i - 1] // 8
    ]
    assert "the rows are grouped" in html_of(result)
    assert (
        drawn["Mean length along the file"].heights[0]
        > drawn["Mean length along the file"].heights[-1]
    )


def test_copies_and_leaks(grouped: DataReport) -> None:
    html = html_of(report_as_dict(grouped))
    assert "2 duplicates of 1 row" in html
    assert 'href="#row=10"' in html
    assert "5 of 5 evaluation rows are known from the training data" in html


def test_a_case_of_the_evaluation_data_leads_to_no_training_row(grouped: DataReport) -> None:
    result = report_as_dict(grouped)
    leak = next(finding for finding in result["findings"] if finding["rule"] == "train-eval-leak")
    place = f"{leak['cases'][0]['file']}:{leak['cases'][0]['line']}"
    assert f'<span class="place">{place}</span>' in html_page_of_json(result)


def test_pairs(pairs: DataReport) -> None:
    result = report_as_dict(pairs)
    facts, drawn = result["data"]["pairs"], charts(result)
    html = html_of(result)
    assert f"longer one in {facts['longer']:,} of 60 pairs" in html
    assert f"{facts['margins']['negative']:,} of 60 prefer the rejected answer" in html
    assert len(drawn["Length of answers"].titles) == 2 * len(facts["chosen"]["counts"])
    assert drawn["Score of the chosen answer less that of the rejected one"].marks == 1


def test_an_audit_shows_its_lines() -> None:
    line = {"rank": 0, "batch": 0, "side": "", "placed_by": "", "places": 16}
    lines = [
        {**line, "line": i, "tokens": 16 - 4 * i, "supervised": 4, "documents": 2 - i}
        for i in range(2)
    ]
    drawn = charts({"audit": {"lines": lines}})
    assert drawn["Lines of the batches"].heights == [100, 100]
    assert (
        drawn["Lines of the batches"].titles[1]
        == "batch 0, line 1: 4 supervised, 8 context, 4 padding"
    )
    assert drawn["Documents in each line"].heights == [100, 50]


def test_older_results_have_a_section_too(grouped: DataReport) -> None:
    old = {name: value for name, value in report_as_dict(grouped).items() if name != "data"}
    assert list(charts(old)) == ["Length of examples"]
    assert data_section({"findings": []}) is None


def test_nothing_of_the_data_becomes_markup(hostile: DataReport, grouped: DataReport) -> None:
    for report in (hostile, grouped):
        made = data_section(report_as_dict(report))
        assert made is not None
        assert not re.search("<script|<img|[\x1b\u202e]", made.html)
    assert "&lt;/svg&gt;&lt;script&gt; 8" in html_of(report_as_dict(grouped))
    assert len(HOSTILE) > 9


def _spelled(report: DataReport, token: int) -> str:
    return report.views[0].pieces[token].strip()


def test_in_a_browser(grouped: DataReport, pairs: DataReport, tmp_path: Path) -> None:
    for name, report in (("grouped", grouped), ("pairs", pairs)):
        (tmp_path / f"{name}.html").write_text(html_page_of_report(report), encoding="utf-8")
    with chromium() as browser:
        for name, scheme, size in (
            ("grouped", "light", DESK),
            ("grouped", "dark", PHONE),
            ("pairs", "dark", DESK),
        ):
            with opened(
                browser, tmp_path / f"{name}.html", color_scheme=scheme, viewport=size
            ) as view:
                assert view.evaluate("document.documentElement.scrollWidth") <= size["width"]
                assert violations(view) == []
                for svg in view.locator("#dataset svg").all():
                    share = svg.evaluate(
                        "(svg) => svg.clientWidth / svg.closest('figure').parentElement.clientWidth"
                    )
                    assert share > 0.8, "a chart takes the width that its part of the page has"
                if name == "grouped" and size == DESK:
                    view.locator("#findings a[href='#row=0&tok=128']").first.click()
                    expect(view.locator(".t:focus")).to_have_text(_spelled(grouped, 128))
                    view.locator("#dataset svg[role=group] a").nth(2).click(
                        position={"x": 3, "y": 20}
                    )
                    assert view.url.endswith("#row=16")
                    assert "row 16" in view.locator("#tokens [data-title]").inner_text()
