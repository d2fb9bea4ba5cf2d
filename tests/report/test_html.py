"""The page is self-contained, escapes everything from the data, and shows verdict, findings, ledger and tokens."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import truetune
from tests.report.conftest import HOSTILE
from truetune.checks.check_data import add_token_views, view_row_tokens
from truetune.checks.findings import Case
from truetune.checks.reports import DataReport
from truetune.demo import DATA, TOKENIZER
from truetune.report.as_json import report_as_dict, to_json
from truetune.report.page import html_page_of_json, html_page_of_report, notebook_html
from truetune.report.page.html_document import pack_json
from truetune.report.visible_text import (
    count_noun,
    escape_invisible_characters,
    token_text_with_visible_symbols,
)
from truetune.settings.run_spec import RunSpec

TAGS = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "a",
    "header",
    "nav",
    "main",
    "section",
    "footer",
    "noscript",
    "h1",
    "h2",
    "h3",
    "p",
    "pre",
    "select",
    "b",
    "i",
    "span",
    "samp",
    "kbd",
    "details",
    "summary",
    "dl",
    "dt",
    "dd",
    "div",
    "ul",
    "li",
    "table",
    "caption",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "button",
    "input",
    "label",
    "output",
    "aside",
    "dialog",
    "svg",
    "g",
    "rect",
    "line",
    "path",
    "polyline",
    "circle",
    "text",
    "tspan",
    "fieldset",
    "figure",
    "foreignobject",
    "form",
    "legend",
    "option",
    "figcaption",
    "script",
}


def data_of(text: str) -> dict[str, Any]:
    """What the scripts of a page read."""
    (found,) = re.findall(
        r'<script type="application/gzip\+base64" id="data">([^<]*)</script>', text
    )
    return dict(json.loads(gzip.decompress(base64.b64decode(found))))


class Parsed(HTMLParser):
    """What a browser would make of a page: tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: dict[str, list[str]] = {}
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, []).append(value or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def test_nothing_of_the_data_becomes_markup(hostile: DataReport) -> None:
    text = html_page_of_report(hostile)
    parsed = Parsed(text)
    assert parsed.tags <= TAGS
    assert not {"src", "style", "onerror", "onload", "onclick"} & set(parsed.attributes)
    assert all(link.startswith("#") for link in parsed.attributes["href"])
    written = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", text, flags=re.DOTALL)
    assert [
        c
        for c in written
        if c not in "\n\N{NO-BREAK SPACE}" and escape_invisible_characters(c) != c
    ] == []
    assert text.count("<script") == 2
    assert "\x1b" not in text


def test_every_hostile_string_can_be_read(hostile: DataReport) -> None:
    text = Parsed(html_page_of_report(hostile)).text
    origin = hostile.findings[0].cases[0].origin
    assert origin is not None
    assert escape_invisible_characters(origin.file) in text
    assert "[a](b)" in text
    assert len(HOSTILE) * 2 == hostile.rows
    rows = data_of(html_page_of_report(hostile))["tokens"]["rows"]
    assert [row["pieces"] for row in rows] == [
        list(view.pieces) for view in add_token_views(hostile).views
    ]


def test_the_policy_allows_the_own_style_and_script_alone(broken: DataReport) -> None:
    text = html_page_of_report(broken)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    rules = dict(rule.split(" ", 1) for rule in unescape(policy).split("; "))
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert rules.pop("style-src") == _hashed(style)
    assert rules.pop("script-src") == _hashed(script)
    assert rules == {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'"}
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import", style + script)
    assert "innerHTML" not in script
    assert "eval(" not in script


def _hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_verdict_findings_and_ledger(broken: DataReport) -> None:
    text = Parsed(html_page_of_report(broken)).text.replace("\N{NO-BREAK SPACE}", " ")
    for finding in broken.findings:
        assert escape_invisible_characters(finding.message) in text
        assert escape_invisible_characters(finding.remedy) in text
        assert all(escape_invisible_characters(case.text) in text for case in finding.cases)
    for source, supervised, context in broken.ledger.rows():
        assert f"{source.label}{supervised:,}{context:,}" in text.replace(
            f" {source.label}", source.label
        )
    assert f"supervised {100 * broken.ledger.supervised / broken.ledger.total:.1f} %" in text
    fine = count_noun(len(broken.examined), "check")
    assert (
        html_page_of_report(replace(broken, findings=(), not_judged=())).count(
            f"<p>No findings: {fine} examined and fine</p>"
        )
        == 1
    )


def test_the_bar_covers_the_ledger(broken: DataReport) -> None:
    bars = re.findall(
        r'<foreignObject x="[\d.]+%" y="0" width="([\d.]+)%" height="100%">'
        r'<div class="bar-part s-\w+ (supervised|context)"',
        html_page_of_report(broken),
    )
    assert abs(sum(float(width) for width, _ in bars) - 100) < 0.01
    supervised = sum(float(width) for width, kind in bars if kind == "supervised")
    assert abs(supervised / 100 - broken.ledger.supervised / broken.ledger.total) < 1e-4


def test_a_case_leads_to_its_row(broken: DataReport) -> None:
    parsed = Parsed(html_page_of_report(broken))
    shown = {row["row"] for row in data_of(html_page_of_report(broken))["tokens"]["rows"]}
    links = [link.removeprefix("#") for link in parsed.attributes["href"]]
    rows = [link for link in links if link.startswith("row=")]
    assert rows
    assert {int(link.removeprefix("row=").split("&")[0]) for link in rows} <= shown
    assert {link for link in links if "=" not in link} <= set(parsed.attributes["id"])
    assert len(parsed.attributes["id"]) == len(set(parsed.attributes["id"]))
    given = broken.views[0].example.row.origin
    finding = replace(
        broken.findings[0],
        cases=(Case("here", given, turn=2), Case("there", given, turn=2, token=5)),
    )
    text = html_page_of_report(replace(broken, findings=(finding,)))
    assert f'href="#row={given.row}&amp;turn=2"' in text
    assert f'href="#row={given.row}&amp;turn=2&amp;tok=5"' in text


def test_the_page_is_made_of_the_json(broken: DataReport) -> None:
    assert html_page_of_json(json.loads(to_json(add_token_views(broken)))) == html_page_of_report(
        broken
    )


def test_notebooks_show_the_page_in_a_frame_of_its_own(broken: DataReport) -> None:
    made = notebook_html(broken)
    assert broken._repr_html_() == made
    assert Parsed(made).attributes["sandbox"] == ["allow-scripts"]
    assert Parsed(made).attributes["srcdoc"] == [html_page_of_json(report_as_dict(broken))]


def test_data_survives_the_packing() -> None:
    value = {"a": [*HOSTILE, "\udce6", "</script>"], "b": None}
    text = pack_json(value)
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", text)
    assert json.loads(gzip.decompress(base64.b64decode(text))) == value
    assert pack_json(value) == text


def test_pieces_are_the_text_and_fragments_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "pieces.jsonl"
    content = "a\u00a0b 👩‍👩‍👧 \\x41 𝔘 한국어 �"
    path.write_text(
        json.dumps(
            {
                "messages": [
                    {"role": "user", "content": content},
                    {"role": "assistant", "content": "ok"},
                ]
            }
        )
    )
    (shown,) = view_row_tokens(RunSpec(data=(str(path),), tokenizer=str(TOKENIZER)), 0)
    joined = "".join(shown.pieces).encode("utf-8", "surrogateescape").decode("utf-8")
    assert joined == shown.example.rendering.text
    assert token_text_with_visible_symbols("\udcf0\udc9d") == "⟨F0 9D⟩"


def test_the_demo_page_is_small() -> None:
    text = html_page_of_report(truetune.check(data=str(DATA), tokenizer=str(TOKENIZER)))
    assert len(text) < 400_000
    assert len(re.findall(r"<script>.*?</script>", text, re.DOTALL)[0]) < 90_000
