"""The page is self-contained, escapes everything from the data, and shows findings, ledger, lengths and tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

import truetune
from tests.report.conftest import HOSTILE
from truetune.checks.report import DataReport, Lengths
from truetune.checks.run import view
from truetune.demo import DATA, TOKENIZER
from truetune.report.html import TOKENS_OF_A_PAGE, _histogram, fragment, page
from truetune.report.text import spell, visible
from truetune.spec.run import RunSpec

TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "b", "i", "a", "span", "samp", "details",
    "summary", "svg", "rect", "line", "table", "thead", "tbody", "tr", "th", "td", "br", "footer",
}  # fmt: skip


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
    parsed = Parsed(page(hostile))
    assert parsed.tags <= TAGS
    assert not {"src", "style", "onerror"} & set(parsed.attributes)
    assert all(link.startswith("#row-") for link in parsed.attributes["href"])
    unseen = [c for c in page(hostile) if c not in "\n\N{NO-BREAK SPACE}" and visible(c) != c]
    assert unseen == []


def test_every_hostile_string_can_be_read(hostile: DataReport) -> None:
    text = Parsed(page(hostile)).text
    for string in ("<script>alert(1)</script>", "{{ 7 * 7 }}{% raw %}", "[bold red]x[/]", "\\x1b[31mred"):
        assert string in text
    assert visible(hostile.findings[0].cases[0].origin.file) in text  # type: ignore[union-attr]
    assert len(HOSTILE) * 2 == hostile.rows


def test_the_policy_allows_the_two_style_sheets_alone(broken: DataReport) -> None:
    text = page(broken)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    sheets = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode() for sheet in sheets]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert re.findall(r"'sha256-([^']*)'", policy) == hashes
    assert not re.search(r"https?://|url\(|@import", "".join(sheets))


def test_findings_ledger_and_lengths(broken: DataReport) -> None:
    text = Parsed(page(broken)).text
    for finding in broken.findings:
        assert visible(finding.message) in text
        assert visible(finding.remedy) in text
        assert all(visible(case.text) in text for case in finding.cases)
    for source, supervised, context in broken.ledger.rows():
        assert f"{source.label}{supervised:,}{context:,}" in text.replace(f" {source.label}", source.label)
    assert "over max_length 512" in text
    assert page(broken).count("<line ") == 1
    assert page(replace(broken, findings=())).count("None: this is clean.") == 1


def test_the_bar_covers_the_ledger(broken: DataReport) -> None:
    bars = re.findall(r'<rect class="s-\w+ (\w+)" x="([\d.]+)" y="0" width="([\d.]+)"', page(broken))
    assert abs(sum(float(width) for _, _, width in bars) - 1000) < 0.1
    supervised = sum(float(width) for kind, _, width in bars if kind == "supervised")
    assert abs(supervised / 1000 - broken.ledger.supervised / broken.ledger.total) < 1e-4


def test_each_token_says_its_id_and_its_place(tmp_path: Path) -> None:
    path = tmp_path / "split.jsonl"
    answer = "𝔘 and 👩 end"
    turns = [{"role": "user", "content": "日本 𝔘\n\nx"}, {"role": "assistant", "content": answer}]
    path.write_text(json.dumps({"messages": turns}))
    report = truetune.check(data=str(path), tokenizer=str(TOKENIZER))
    (shown,) = report.views
    tokens = re.findall(r'<span class="s-\w+( learned)?" title="id (\d+) · ([^"]*) · \w+">', page(report))
    assert [int(id) for _, id, _ in tokens] == shown.ids.tolist()
    assert [bool(learned) for learned, _, _ in tokens] == shown.supervised.tolist()
    text = shown.example.rendering.text
    for (_, _, place), start, piece in zip(tokens, shown.starts.tolist(), shown.pieces, strict=True):
        if place.startswith("messages[1].content["):
            offset = int(place.removeprefix("messages[1].content[").removesuffix(":]"))
            assert answer[offset] == text[start]
            assert answer.startswith(piece, offset) or any("\udc80" <= c <= "\udcff" for c in piece)
    assert f"messages[1].content[{len(answer) - 4}:]" in page(report)
    assert page(report).count("<br>") == text.count("\n")


def test_a_case_leads_to_its_tokens(broken: DataReport) -> None:
    parsed = Parsed(page(broken))
    assert {link.removeprefix("#") for link in parsed.attributes["href"]} <= set(parsed.attributes["id"])
    twice = Parsed(page(replace(broken, views=broken.views[:1] * 2)))
    assert twice.attributes["id"] == ["row-0"]


def test_long_examples_are_cut_and_say_so(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "word " * 25_000}]
    path.write_text(json.dumps({"messages": turns}))
    report = truetune.check(data=str(path), tokenizer=str(TOKENIZER))
    text = page(report)
    assert "the first 20,000 are shown" in text
    many = page(replace(report, views=report.views * 25))
    assert f"the first {TOKENS_OF_A_PAGE // 25:,} are shown" in many
    assert many.count('title="id ') == TOKENS_OF_A_PAGE


def test_the_limit_stands_in_the_wide_last_bar() -> None:
    edges = np.array([0, 100, 200, 1000])
    lengths = Lengths(np.array([5, 9, 1]), edges, 90, 150, 999, limit=600, over=1, lost_tokens=399, lost_supervised=9)
    drawn = _histogram(lengths)
    assert drawn["line"] == 500
    assert drawn["marks"] == [0, 150, 1000]
    assert [bar["height"] for bar in drawn["bars"]] == [77.8, 140.0, 15.6]
    assert [bar["over"] for bar in drawn["bars"]] == [False, False, False]


def test_notebooks_show_the_fragment(broken: DataReport) -> None:
    assert broken._repr_html_() == fragment(broken)
    assert fragment(broken) in page(broken)


def test_pieces_are_the_text_and_fragments_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "pieces.jsonl"
    content = "a\u00a0b 👩‍👩‍👧 \\x41 𝔘 한국어 �"
    path.write_text(
        json.dumps({"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": "ok"}]})
    )
    (shown,) = view(RunSpec(data=(str(path),), tokenizer=str(TOKENIZER)), 0)
    joined = "".join(shown.pieces).encode("utf-8", "surrogateescape").decode("utf-8")
    assert joined == shown.example.rendering.text
    assert spell("\udcf0\udc9d") == "⟨F0 9D⟩"


def test_the_demo_page_is_small() -> None:
    assert len(page(truetune.check(data=str(DATA), tokenizer=str(TOKENIZER)))) < 500_000
