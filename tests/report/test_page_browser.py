"""The page in a real browser: what it draws of hostile rows, how it is walked, and that it is small and accessible."""

from __future__ import annotations

import json
import random
import re
import threading
import unicodedata
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from playwright.sync_api import Browser, Page, expect

import truetune
from tests.browser import DESK, PHONE, chromium, opened, violations
from tests.report.conftest import HOSTILE
from tests.report.test_audited import audited
from truetune.checks.reports import DataReport
from truetune.demo import TOKENIZER
from truetune.report.page import html_page_of_report, notebook_html
from truetune.report.page.html_document import html_document
from truetune.report.page.tokens_section import token_view_section
from truetune.report.visible_text import (
    escape_invisible_characters,
    token_text_with_visible_symbols,
)

Open = Callable[..., Page]
Row = dict[str, Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def see(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens a page, or one made of rows; complaints of its scripts fail when the test ends."""
    contexts = []

    def call(what: str | list[Row], hash: str = "", **options: Any) -> Page:
        path = tmp_path / "page.html"
        html = (
            html_document("rows", [token_view_section({"rows": what})], {})
            if isinstance(what, list)
            else what
        )
        path.write_text(html, encoding="utf-8")
        contexts.append(opened(browser, path.as_uri() + hash, **options))
        view = contexts[-1].__enter__()
        view.set_default_timeout(5000)
        return view

    yield call
    for context in contexts:
        context.__exit__(None, None, None)


def row(number: int | None, *pieces: str, supervised: str | None = None, **more: Any) -> Row:
    """A row whose tokens are from `messages[1].content`, with ids from 100 on."""
    return {
        "row": number,
        "file": None if number is None else "chat.jsonl",
        "line": None if number is None else number + 1,
        "turn": None,
        "format": None,
        "title": None,
        "ids": list(range(100, 100 + len(pieces))),
        "pieces": list(pieces),
        "source": "e" * len(pieces),
        "supervised": supervised or "1" * len(pieces),
        "runs": [[0, "messages[1].content", 0, 10**9, 1]],
        **more,
    }


def words(seed: int, count: int) -> list[str]:
    draw = random.Random(seed)
    return draw.choices(
        (" the", " lamp", "s", ".", "\n", " order", " 40", "Good", " évening", "?"), k=count
    )


def shown(page: Page) -> list[str]:
    return page.locator(".tokens").first.locator(".t").all_text_contents()


def known(page: Page) -> dict[str, str]:
    """What the panel says of a token."""
    names, values = page.locator("#token-facts dt"), page.locator("#token-facts dd")
    return dict(zip(names.all_text_contents(), values.all_text_contents(), strict=True))


def focused(page: Page) -> int:
    return int(page.evaluate("document.activeElement.dataset.i ?? -1"))


def test_the_spelling_is_that_of_the_terminal(see: Open) -> None:
    view = see([row(0, "a")])
    codes = [
        c
        for c in (
            *range(0xD800),
            *range(0xDC80, 0xDD00),
            *range(0xE000, 0x20000, 3),
            *range(0xE0000, 0xE0200),
        )
        if unicodedata.category(chr(c)) != "Cn" and not 0x3400 <= c < 0xD700
    ]
    expected = [
        [c, escape_invisible_characters(chr(c)), token_text_with_visible_symbols(chr(c))]
        for c in codes
    ]
    wrong = view.evaluate(
        """(all) => all.map(([code, visible, spell]) => [String.fromCodePoint(code), visible, spell]).filter(
        ([c, visible, spell]) => truetune.spelling.visible(c) !== visible || truetune.spelling.spell(c) !== spell)""",
        [[c, *both] for c, *both in expected if both != [chr(c)] * 2] + [[65, "A", "A"]],
    )
    assert wrong == []
    plain = [c for c, *both in expected if both == [chr(c)] * 2]
    same = (
        "(codes) => codes.map((c) => String.fromCodePoint(c)).filter((c) =>"
        " truetune.spelling.spell(c) !== c)"
    )
    assert view.evaluate(same, plain) == []
    texts = [
        *HOSTILE,
        "",
        "\ud83e",
        "\udce6\udc97",
        "a\udcf0b\n\tc",
        "\n\n",
        "\u0645\u0631\u062d",
        "x" * 5000,
    ]
    assert view.evaluate("(texts) => texts.map(truetune.spelling.spell)", texts) == [
        token_text_with_visible_symbols(text) for text in texts
    ]
    assert view.evaluate("(texts) => texts.map(truetune.spelling.visible)", texts) == [
        escape_invisible_characters(text) for text in texts
    ]


def test_hostile_rows_are_text_and_nothing_else(see: Open) -> None:
    script = "</script><script>document.title='owned'</script>"
    attacks = (*HOSTILE, script, "<!--", "]]>", "w" * 3000, "\ud83d", "\udce6")
    view = see(
        [row(i, text, text, title=text, format=text, file=text) for i, text in enumerate(attacks)]
    )
    for i, text in enumerate(attacks):
        view.evaluate("(hash) => truetune.follow(hash)", f"#row={i}")
        assert shown(view) == [token_text_with_visible_symbols(text)] * 2
        assert known(view)["text"] == token_text_with_visible_symbols(text)
        assert (
            escape_invisible_characters(text) in view.locator("[data-title]").inner_text()
            or not text.strip()
        )
    assert view.title() == "rows"
    assert view.locator("main script, main img, main style, [style*=url]").count() == 0


def test_the_whole_page_of_hostile_data(see: Open, hostile: DataReport) -> None:
    view = see(html_page_of_report(hostile))
    assert view.locator("main :is(script, img, iframe, style, link, object)").count() == 0
    audit = see(html_page_of_report(audited(list(HOSTILE))), "#view=3")
    assert audit.locator("[data-title]").inner_text().startswith("batch ")
    assert violations(audit) == []


def test_ranges_count_characters_as_python_does(see: Open, tmp_path: Path) -> None:
    answer = "𝔘 and 👩\u200d👩 日本 end\n\nof é it"
    turns = [{"role": "user", "content": "日本 𝔘\n\nx"}, {"role": "assistant", "content": answer}]
    (tmp_path / "split.jsonl").write_text(json.dumps({"messages": turns}))
    report = truetune.check(data=str(tmp_path / "split.jsonl"), tokenizer=str(TOKENIZER))
    assert isinstance(report, DataReport)
    (given,) = report.views
    view = see(html_page_of_report(report))
    places = view.evaluate(
        "async () => truetune.spelling.places((await truetune.unpack('data')).tokens.rows[0])"
    )
    covered = 0
    for (path, start, end, _), piece in zip(places, given.pieces, strict=True):
        if path == "messages[1].content":
            whole = piece.encode("utf-8", "surrogateescape")
            assert whole in answer[start:end].encode()
            assert covered - 1 <= start <= covered <= end
            covered = end
    assert covered == len(answer)
    whole = view.evaluate(
        "async () => truetune.spelling.whole((await truetune.unpack('data')).tokens.rows[0].pieces)"
    )
    assert "".join(whole) == given.example.rendering.text


def test_keys_walk_tokens_and_rows(see: Open) -> None:
    view = see([row(i, *(f"w{j} " for j in range(200))) for i in range(40)])
    view.locator(".t").first.click()
    walk = (
        ("Right", 1),
        ("Right", 2),
        ("Left", 1),
        ("End", 199),
        ("Right", 199),
        ("Home", 0),
        ("Left", 0),
    )
    for key, at in walk:
        view.keyboard.press(key if key in ("End", "Home") else f"Arrow{key}")
        assert focused(view) == at
    view.keyboard.press("ArrowDown")
    below = focused(view)
    assert 3 < below < 40
    assert view.evaluate("document.activeElement.offsetLeft") < 40
    view.keyboard.press("ArrowUp")
    assert focused(view) == 0
    assert view.locator(".t[tabindex='0']").count() == 1
    for key, number in (("j", 1), ("PageDown", 2), ("k", 1), ("PageUp", 0)):
        view.keyboard.press(key)
        expect(view.locator("[data-title]")).to_contain_text(f"row {number} ")
        assert focused(view) == 0
    view.locator(".list").focus()
    view.keyboard.press("End")
    expect(view.locator("[data-title]")).to_contain_text("row 39 ")
    assert view.locator(".entry[aria-selected=true]").inner_text().startswith("row 39")
    view.keyboard.press("?")
    expect(view.locator("dialog")).to_be_visible()
    view.keyboard.press("Escape")
    view.keyboard.press("/")
    assert view.evaluate("document.activeElement.type") == "search"


def test_a_token_tells_all_that_is_known(see: Open) -> None:
    made = row(
        7, "a", "b", "c", supervised="011", expected="010", attended="110", positions=[4, 5, 6], documents=[0, 0, 0],
        origins=[["x.jsonl", 3, 2]], labels=[-100, 101, 102], weights=[0, 0.5, 1], losses=[None, 1.25, 0.001],
    )  # fmt: skip
    view = see([made], "#row=7&tok=2")
    assert focused(view) == 2
    assert known(view) == {
        "text": "c",
        "id": "102",
        "source": "assistant content",
        "from": "messages[1].content[2:3]",
        "label": "102 (supervised)",
        "wrong": "is learned, and must not be",
        "token": "2 of 3",
        "position": "6",
        "document": "0: x.jsonl:3",
        "attended": "no",
        "weight": "1",
        "loss": "0.001",
    }
    view.locator(".t").first.hover()
    assert known(view)["id"] == "100"
    assert "loss" not in known(view)
    view.mouse.move(1, 1)
    assert known(view)["id"] == "102"
    assert view.locator(".t[aria-describedby=token-facts]").get_attribute("data-i") == "2"


def test_links_lead_to_a_token_and_are_given(see: Open) -> None:
    rows = [row(i, *words(i, 400)) for i in range(30)]
    rows.insert(
        13,
        row(12, "one", "two", turn=3)
        | {"runs": [[0, "", -1, -1, None], [1, "messages[3].content", 0, 3, 3]]},
    )
    rows[12]["turn"] = 1
    view = see(rows, "#row=17&tok=342")
    assert (focused(view), known(view)["id"]) == (342, "442")
    assert view.locator(".t[tabindex='0']").is_visible()
    expect(view.locator(".t:focus")).to_be_in_viewport(ratio=1)
    assert view.locator("[data-link]").get_attribute("href") == "#row=17&tok=342"
    view.evaluate("location.hash = '#row=12&turn=3'")
    expect(view.locator("#token-facts")).to_contain_text("messages[3].content[0:3]")
    assert focused(view) == 1
    assert view.locator(".turns button").all_text_contents() == ["turn 1", "turn 3"]
    view.get_by_role("button", name="copy link").click()
    expect(view.locator(".said")).to_contain_text(re.compile("link is copied|#row=12&turn=3&tok=1"))
    assert view.url.endswith("#row=12&turn=3&tok=1")
    view.locator("[data-jump]").fill("99")
    view.keyboard.press("Tab")
    expect(view.locator("[data-title]")).to_contain_text("row 29 ")


def test_links_know_the_side_of_a_pair(see: Open) -> None:
    rows = [row(5, "good", "!", title="chosen"), row(5, "bad", "?", title="rejected"), row(6, "x")]
    view = see(rows, "#row=5&side=rejected&tok=1")
    assert shown(view) == ["bad", "?"]
    assert focused(view) == 1
    assert view.locator("[data-link]").get_attribute("href") == "#row=5&side=rejected&tok=1"
    assert view.locator(".turns button[aria-pressed=true]").all_text_contents() == ["rejected"]
    expect(view.locator(".entry").first).to_contain_text("2 sides")
    for link, text in (
        ("#row=5&tok=0", "good"),
        ("#row=5&side=rejected&turn=1", "bad"),
        ("#row=6&side=rejected", "x"),
    ):
        view.evaluate("(hash) => truetune.follow(hash)", link)
        expect(view.locator(".t").first).to_have_text(text)
    expect(view.locator(".said")).to_have_text("row 6 has no such side in this page")


def test_a_finding_on_the_rejected_side_opens_it(see: Open, tmp_path: Path) -> None:
    rows = [
        {"prompt": "one", "chosen": f"two{i}<|im_end|>", "rejected": f"three{i}"} for i in range(3)
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = truetune.check(
        data=str(tmp_path / "pairs.jsonl"), tokenizer=str(TOKENIZER), select="PREF005"
    )
    view = see(html_page_of_report(report))
    view.locator("#findings .case a").nth(1).click()
    assert shown(view)[-1] == "1"
    assert focused(view) == len(shown(view)) - 1
    assert view.locator("[data-title]").inner_text().startswith("row 1 · rejected")


@pytest.mark.parametrize("kept", [[0, 3], [2, 5]])
def test_a_limit_is_drawn_where_it_cuts(see: Open, kept: list[int]) -> None:
    view = see([row(0, *"abcde", expected="01111", kept=kept), row(1, "a")])
    inside = list("abcde"[slice(*kept)])
    title = (
        "cut here: max_length 3; what "
        + ("stands before" if kept[0] else "follows")
        + " is not learned"
    )
    group = view.get_by_role("group", name=title)
    assert group.locator(".t").all_text_contents() == (inside if kept[0] else ["d", "e"])
    expect(group.locator(".border")).to_have_text(title)
    assert view.locator(".t.sup").all_text_contents() == inside
    assert view.locator(".t.wrong").count() == (not kept[0])
    cut = view.locator(".t.cut")
    assert cut.all_text_contents() == [text for text in "abcde" if text not in inside]
    assert cut.first.evaluate("(t) => getComputedStyle(t).textDecorationLine") == "line-through"
    expect(view.locator(".sources")).to_contain_text(
        "struck through: cut off by max_length 3, not learned"
    )
    expect(view.locator(".entry").first).to_contain_text("5 tokens, 3 supervised")
    cut.first.click()
    assert known(view)["label"] == "none: cut off by max_length 3"
    view.keyboard.press("ArrowLeft" if kept[0] else "ArrowRight")
    assert focused(view) == (0 if kept[0] else 4)
    view.get_by_label("only supervised").check()
    assert shown(view) == inside
    view.get_by_label("only supervised").uncheck()
    view.get_by_label("as text").check()
    assert view.locator(".t.cut").count() == 2
    assert violations(view) == []


def test_findings_lead_to_their_tokens(see: Open, broken: DataReport) -> None:
    view = see(html_page_of_report(broken))
    link = view.locator("#findings a[href*='turn=']").first
    place = link.get_attribute("href") or ""
    link.click()
    expect(view.locator(".t:focus")).to_have_count(1)
    asked = dict(part.split("=") for part in place[1:].split("&"))
    assert f"row {asked['row']} " in view.locator("[data-title]").inner_text()
    if "tok" not in asked:
        assert known(view)["from"].startswith(f"messages[{asked['turn']}]")
    view.get_by_role("button", name="next finding").click()
    expect(view.locator(".said")).to_contain_text(
        f"1 of {view.locator('#findings .case a').count()}: "
    )


def test_search_goes_across_tokens_and_rows(see: Open) -> None:
    rows = [
        row(0, "a nee", "dle in hay", "needle"),
        row(1, "no"),
        row(2, "", "\udce6\udc97", "\udca5", "NEEDLE."),
    ]
    view = see(rows)
    box = view.get_by_role("searchbox", name="Search the rows")
    box.fill("needle")
    expect(view.locator("[data-hits]")).to_have_text("1 of 3")
    assert view.locator(".found.now").all_text_contents() == ["a nee", "dle in hay"]
    assert view.locator(".found").count() == 3
    for number, key in ((2, "Enter"), (3, "Enter"), (1, "Enter"), (3, "Shift+Enter")):
        box.press(key)
        expect(view.locator("[data-hits]")).to_have_text(f"{number} of 3")
    assert "row 2 " in view.locator("[data-title]").inner_text()
    box.fill("日")
    expect(view.locator(".found.now")).to_have_count(2)
    assert view.locator(".found.now").all_text_contents() == ["⟨E6 97⟩", "⟨A5⟩"]
    box.fill("#101")
    expect(view.locator("[data-hits]")).to_have_text("2 of 2")
    box.fill("(.*")
    expect(view.locator("[data-hits]")).to_have_text("nothing found")


def test_switches_change_what_is_shown(see: Open) -> None:
    made = row(
        0,
        "\n",
        "He",
        "\udce6\udc97",
        "\udca5",
        " y",
        supervised="00111",
        expected="01110",
        source="adeei",
    )
    view = see([made | {"losses": [None, None, 0.01, 1.5, 9]}, row(1, "a")])
    assert shown(view) == ["↵", "He", "⟨E6 97⟩", "⟨A5⟩", " y"]
    assert view.locator(".t.sup").count() == 3
    assert view.locator(".t.wrong").all_text_contents() == ["He", " y"]
    view.get_by_label("as text").check()
    assert "".join(shown(view)) == "\nHe日 y"
    assert view.locator(".t.sup").count() == 3
    view.get_by_label("as text").uncheck()
    view.get_by_label("only supervised").check()
    assert shown(view) == ["⟨E6 97⟩", "⟨A5⟩", " y"]
    assert view.locator(".gap").all_text_contents() == ["⋯2"]
    view.get_by_label("only wrong").check()
    assert shown(view) == [" y"]
    view.evaluate("truetune.follow('#row=0&tok=0')")
    expect(view.locator(".t")).to_have_count(5)
    view.get_by_role("button", name="assistant content 2").click()
    assert shown(view) == ["↵", "He", " y"]
    view.get_by_role("button", name="assistant content 2").click()
    view.get_by_label("ids").check()
    assert [token.get_attribute("data-id") for token in view.locator(".t").all()] == [
        "100",
        "101",
        "102",
        "103",
        "104",
    ]
    view.get_by_label("colour by loss").check()
    assert view.locator(".t.l0, .t.l3, .t.l5").count() == 3
    view.evaluate("truetune.follow('#row=1')")
    expect(view.get_by_label("colour by loss")).to_be_hidden()
    expect(view.get_by_label("only wrong")).to_be_hidden()


def test_a_row_stands_beside_its_twin(see: Open) -> None:
    clean = row(0, "a", "b", "c", "d", "e") | {"ids": [1, 2, 3, 4, 5]}
    bad = row(0, "a", "x", "c", "e", "z", supervised="11011", twin=clean, twin_name="as served")
    view = see([bad | {"ids": [1, 9, 3, 5, 6]}, row(1, "a", "b", supervised="10", expected="11")])
    view.get_by_label("compare with as served").check()
    left, right = view.locator(".tokens").all()
    assert left.locator(".differs").all_text_contents() == ["x", "c", "z"]
    assert right.locator(".differs").all_text_contents() == ["b", "c", "d"]
    right.locator(".t").nth(3).click()
    assert known(view)["id"] == "4"
    view.evaluate("truetune.follow('#row=1')")
    expect(view.locator(".tokens").nth(1).locator(".t.sup")).to_have_count(2)
    assert view.locator(".differs").all_text_contents() == ["b", "b"]


def test_differences_are_the_shortest(see: Open) -> None:
    view, draw = see([row(0, "a")]), random.Random(3)
    for _ in range(40):
        sides = [[draw.randrange(4) for _ in range(draw.randrange(12))] for _ in range(2)]
        rows = [{"ids": ids, "supervised": "0" * len(ids)} for ids in sides]
        marks = view.evaluate("([a, b]) => truetune.boxes.differing(a, b).map((m) => [...m])", rows)
        left, right = (
            [id for id, mark in zip(*side, strict=True) if not mark]
            for side in zip(sides, marks, strict=True)
        )
        assert left == right
        assert len(left) == _common(*sides)


def _common(a: list[int], b: list[int]) -> int:
    """Length of the longest common subsequence."""
    last = [0] * (len(b) + 1)
    for x in a:
        line = [0]
        for j, y in enumerate(b):
            line.append(last[j] + 1 if x == y else max(line[j], last[j + 1]))
        last = line
    return last[-1]


def test_packed_rows_show_their_borders(see: Open) -> None:
    made = row(
        None, *"abcdef", title="batch 0, line 1", documents=[0, 0, 1, 1, 2, -1], positions=[0, 1, 0, 1, 2, 0],
        origins=[["x.jsonl", 3, 2], ["<b>.jsonl", 9, 8], ["y.jsonl", 1, 0]], padding="000001",
    )  # fmt: skip
    view = see([made], "#view=0&tok=4")
    assert view.locator(".border").all_text_contents() == [
        "document 0 from x.jsonl:3, row 2",
        "document 1 from <b>.jsonl:9, row 8; positions begin again at 0",
        "document 2 from y.jsonl:1, row 0; positions continue at 2",
        "padding",
    ]
    assert (focused(view), known(view)["document"]) == (4, "2: y.jsonl:1")
    assert view.locator("[role=group].document").count() == 4
    assert view.locator("[data-link]").get_attribute("href") == "#view=0&tok=4"


def test_a_thousand_rows_are_small_and_few_are_drawn(see: Open) -> None:
    made = [row(i, *words(i, 300), supervised="0" * 150 + "1" * 150) for i in range(1000)]
    html = html_document("rows", [token_view_section({"rows": made})], {})
    assert len(html) < 3_000_000
    view = see(html)
    assert view.locator(".entry").count() < 40
    assert view.locator(".t").count() == 300
    view.locator(".list").evaluate("(list) => { list.scrollTop = 500 * 64; }")
    expect(view.locator(".entry").nth(4)).to_contain_text(re.compile("row (49|50)"))
    assert view.locator(".entry").count() < 40
    view.get_by_role("searchbox", name="Search the rows").fill("lamps")
    expect(view.locator("[data-hits]")).to_contain_text(re.compile(r"1 of [\d,]{4,}"))


def test_a_million_rows_fit_the_list(see: Open) -> None:
    view = see([row(0, "a")])
    texts = view.evaluate(
        """async () => {
        const box = document.body.appendChild(document.createElement("div"));
        box.className = "list"; document.querySelector(".tokenview").append(box);
        const list = truetune.list(box, 64, (k) => truetune.make("div", {class: "entry"}, String(k)));
        list.resize(1_000_000); list.reveal(999_999);
        const seen = () => [...box.querySelectorAll(".entry")].filter((e) => {
            const a = e.getBoundingClientRect(), b = box.getBoundingClientRect();
            return a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
        }).map((e) => e.textContent);
        const end = seen().at(-1); list.reveal(123_456); return [end, seen().includes("123456")]; }"""
    )
    assert texts == ["999999", True]


ROWS = 300_000


class Rows(BaseHTTPRequestHandler):
    """A server of ROWS rows, as `truetune view` is one: at most 8 at a time; one in 1,000 is faulty; 7 in two turns."""

    def do_GET(self) -> None:
        path, _, text = self.path.partition("?")
        query = {name: values[0] for name, values in parse_qs(text).items()}
        answers = {
            "/": self.html_page_of_report,
            "/rows": self.rows,
            "/search": self.search,
            "/totals": self.totals,
        }
        body = answers[path](query)
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if path == "/" else "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def html_page_of_report(self, query: dict[str, str]) -> str:
        return html_document("rows", [token_view_section({"remote": "rows"})], {}, connect=True)

    def rows(self, query: dict[str, str]) -> str:
        start, count = int(query["start"]), min(int(query["count"]), 8)
        numbers = range(start, min(start + count, ROWS))
        made = [row(i, f"row {i}", " needle" if i == 250_000 else " hay") for i in numbers]
        made[1:1] = [row(7, "seven", turn=3)] if start == 7 else []
        return json.dumps(
            {"rows": made, "total": ROWS, "indexed": ROWS, "notice": "<b>one</b> notice"}
        )

    def totals(self, query: dict[str, str]) -> str:
        counts = {"rows": ROWS, "total": ROWS, "tokens": 2 * ROWS, "supervised": ROWS}
        return json.dumps(
            counts
            | {"done": True, "failure": "<b>not</b> all", "roles": [], "file_count": 0, "files": []}
        )

    def search(self, query: dict[str, str]) -> str:
        start = int(query["start"])
        found = -(-start // 1000) * 1000 if "kind" in query else 250_000
        part = start + 100_000
        here = start <= found < min(part, ROWS)
        return json.dumps({"row": found if here else None, "scanned": part, "done": part >= ROWS})

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Rows) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_rows_of_a_server_come_when_they_are_looked_at(browser: Browser, served: str) -> None:
    asked = list[str]()
    with opened(browser, served + "#row=123456&tok=1") as view:
        view.set_default_timeout(5000)
        view.on("request", lambda request: asked.append(request.url))
        expect(view.locator(".t")).to_have_text(["row 123456", " hay"])
        expect(view.locator(".said")).to_have_text("<b>one</b> notice")
        assert focused(view) == 1
        view.locator("[data-jump]").fill("299999")
        view.keyboard.press("Enter")
        expect(view.locator(".t").first).to_have_text("row 299999")
        expect(view.locator(".entry[aria-selected=true]")).to_contain_text("row 299,999")
        view.get_by_role("button", name="next finding").click()
        expect(view.locator(".said")).to_have_text("none from row 300,000 on")
        view.locator("[data-jump]").fill("20")
        view.keyboard.press("Enter")
        view.get_by_role("button", name="next finding").click()
        expect(view.locator(".t").first).to_have_text("row 1000")
        view.get_by_role("searchbox", name="Search the rows").fill("NEEDLE")
        view.keyboard.press("Enter")
        expect(view.locator(".found.now")).to_have_text(" needle")
        expect(view.locator("[data-title]")).to_contain_text("row 250,000 ")
        assert len(asked) < 60
        assert violations(view) == []


def test_a_row_of_20_000_tokens(see: Open) -> None:
    view = see([row(0, *words(1, 20_000))], "#row=0&tok=19990")
    assert view.locator(".t").count() == 20_000
    assert focused(view) == 19_990
    assert view.locator(".t:focus").is_visible()
    assert (
        view.evaluate(
            "Math.max(...[...document.querySelectorAll('.chunk')].map((c) => c.childElementCount))"
        )
        <= 600
    )
    assert (
        view.evaluate("getComputedStyle(document.querySelectorAll('.chunk')[20]).contentVisibility")
        == "auto"
    )


@pytest.mark.parametrize(
    ("theme", "size"), [("light", DESK), ("dark", DESK), ("light", PHONE), ("dark", PHONE)]
)
def test_axe_is_content_and_nothing_sticks_out(
    see: Open, broken: DataReport, theme: str, size: dict[str, int]
) -> None:
    view = see(html_page_of_report(broken), "#row=7&tok=20", color_scheme=theme, viewport=size)
    if theme == "light":
        assert violations(view) == []
    assert view.evaluate("document.documentElement.scrollWidth <= innerWidth")
    view.get_by_label("as text").check()
    assert view.evaluate("document.documentElement.scrollWidth <= innerWidth")
    view.get_by_label("only supervised").check()
    view.get_by_role("searchbox", name="Search the rows").fill("re")
    expect(view.locator("[data-hits]")).to_contain_text(" of ")
    if theme == "dark":
        assert violations(view) == []


def test_axe_finds_nothing_in_packs_twins_and_losses(see: Open) -> None:
    made = row(
        0, *"abcd", supervised="0111", expected="1110", documents=[0, 0, 1, 1], losses=[None, 0.1, 1, 7],
        attended="1100", padding="0001", origins=[["x", 1, 0], ["y", 1, 0]], twin=row(0, *"abc"), twin_name="clean",
    )  # fmt: skip
    for theme in ("light", "dark"):
        view = see([made, made], color_scheme=theme)
        for name in ("ids", "compare with clean", "colour by loss"):
            view.get_by_label(name).check()
        assert violations(view) == []


def test_the_theme_can_be_changed(see: Open, broken: DataReport) -> None:
    view = see(html_page_of_report(broken), color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    before = view.evaluate(ground)
    view.get_by_role("button", name="Light or dark").click()
    assert view.evaluate(ground) != before


def test_many_findings_can_be_sifted(see: Open, broken: DataReport) -> None:
    view = see(html_page_of_report(broken))
    total, errors = view.locator(".finding").count(), view.locator(".finding.error").count()
    view.get_by_role("button", name=re.compile(r"warnings?$")).click()
    assert view.locator(".finding:visible").count() == errors < total
    view.get_by_role("searchbox", name="Filter findings").fill("turn-roles")
    assert view.locator(".finding:visible").count() == 1
    view.get_by_role("button", name="collapse or expand all").click()
    assert view.locator(".finding[open]").count() == 0
    view.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert view.locator(".finding[open]").count() == total
    view.evaluate("dispatchEvent(new Event('afterprint'))")
    assert view.locator(".finding[open]").count() == 0


def test_the_policy_stops_what_is_not_ours(
    browser: Browser, tmp_path: Path, broken: DataReport
) -> None:
    attack = (
        "<img src='x:' onerror='window.owned = 1'><p style='color: red' id='painted'>x</p>"
        "<script>window.owned = 1</script>"
    )
    (tmp_path / "page.html").write_text(
        html_page_of_report(broken).replace("</main>", attack + "</main>"), encoding="utf-8"
    )
    view, said = browser.new_page(), list[str]()
    view.on("console", lambda message: said.append(message.text))
    view.goto((tmp_path / "page.html").as_uri())
    view.wait_for_selector("html[data-ready]", state="attached")
    assert view.evaluate("window.owned") is None
    assert (
        view.evaluate("getComputedStyle(document.getElementById('painted')).color")
        != "rgb(255, 0, 0)"
    )
    assert len([text for text in said if "Content Security Policy" in text]) >= 3
    assert view.evaluate("fetch('data:,x').then(() => 'read', () => 'refused')") == "refused"
    view.close()


def test_it_works_in_the_frame_of_a_notebook(see: Open, broken: DataReport) -> None:
    outer = see(
        f"<!doctype html><html data-ready><title>notebook</title>{notebook_html(broken)}</html>"
    )
    frame = outer.frame_locator("iframe")
    frame.locator("html[data-ready]").wait_for(state="attached")
    frame.locator("#findings .case a").first.click()
    expect(frame.locator(".t:focus")).to_have_count(1)
    frame.get_by_role("button", name="copy link").click()
    expect(frame.locator(".said")).not_to_be_empty()
    frame.get_by_role("link", name="Verdict", exact=True).click()
    frame.get_by_role("button", name="Light or dark").click()
    parent = "(() => { try { return parent.document.title; } catch { return 'refused'; } })()"
    assert outer.frames[1].evaluate(parent) == "refused"
    assert frame.locator(".t").count() > 0


def test_a_row_that_has_no_tokens_says_why(see: Open) -> None:
    view = see([row(0, error="the template refuses: <b>no</b>"), row(1, "a")])
    expect(view.locator("[data-amiss]")).to_have_text("the template refuses: <b>no</b>")
    view.locator(".list").focus()
    view.keyboard.press("ArrowDown")
    expect(view.locator(".t")).to_have_text(["a"])
    expect(view.locator("[data-amiss]")).to_have_text("")


def test_marks_stay_where_colours_are_forced(see: Open) -> None:
    view = see([row(0, "a", "b", supervised="01")], forced_colors="active")
    styles = view.evaluate(
        "[...document.querySelectorAll('.t')].map((t) => getComputedStyle(t).borderBottomStyle)"
    )
    assert styles == ["solid", "double"]
