"""Rows are filtered and sorted by finding, role, file, length and supervised share; the address
keeps the filter."""

from __future__ import annotations

import base64
import gzip
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

import truetune
from tests.browser import DESK, PHONE, chromium, cut_words, opened, violations
from tests.viewing.conftest import serving
from tests.viewing.test_server import answer, status
from truetune.checks.reports import DataReport
from truetune.demo import BROKEN, DATA, TOKENIZER
from truetune.errors import FastPathError
from truetune.report.as_json import report_as_dict
from truetune.report.page import html_page_of_report
from truetune.settings.run_spec import RunSpec
from truetune.viewing import read_parts_of_files
from truetune.viewing.count_conversation_tokens import ConversationTokenCounter
from truetune.viewing.filter_and_sort_rows import RowFilter, select_rows
from truetune.viewing.local_server import ViewServer
from truetune.viewing.read_parts_of_files import TextReader
from truetune.viewing.row_index import RowIndex
from truetune.viewing.row_service import MAX_NAMED_FILES, RowService
from truetune.viewing.token_counts_of_rows import count_tokens
from truetune.viewing.view import make_row_service


def counted(data: Path, **settings: Any) -> RowService:
    """The service of some data, all rows counted."""
    spec = RunSpec(data=(str(data),), tokenizer=str(TOKENIZER), **settings)
    service = make_row_service(spec)
    service.row_index.index()
    while not (totals := service.totals())["done"]:
        assert totals["failure"] is None
        time.sleep(0.02)
    return service


def rows_of(selection: dict[str, Any]) -> list[int]:
    numbers: list[int] = np.frombuffer(base64.b64decode(selection["rows"]), "<u4").tolist()
    return numbers


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_length": 64},
        {"max_length": 90, "mask_by": "response-marker", "response_marker": "assistant\n"},
        {"mask_by": "generation-tags"},
    ],
)  # fmt: skip
def test_the_figures_are_those_of_the_rows_that_are_drawn(settings: dict[str, Any]) -> None:
    service = counted(BROKEN, **settings)
    figures, _ = service.background_count.counts.joined_counts_and_rows_per_kind()
    for number in range(0, 212, 3):
        drawn = service.rows(number, 1)["rows"]
        tokens = sum(len(row["ids"]) for row in drawn)
        supervised = sum(
            row["supervised"][slice(*row.get("kept", (0, None)))].count("1") for row in drawn
        )
        assert (figures.tokens[number], figures.supervised[number]) == (tokens, supervised)
    service.close()


def test_totals_are_those_of_a_check() -> None:
    service = counted(BROKEN)
    report = truetune.check(data=str(BROKEN), tokenizer=str(TOKENIZER))
    assert isinstance(report, DataReport)
    totals = service.totals()
    assert totals["done"]
    assert totals["failure"] is None
    assert totals["tokens"] == report.ledger.total
    assert totals["supervised"] == report.ledger.supervised
    ledger = report_as_dict(report)["ledger"]
    assert {role["key"]: role["supervised"] for role in totals["roles"]} == {
        key: counts["supervised"] for key, counts in ledger.items()
    }
    service.close()


def test_both_sides_of_a_pair_count(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"prompt": "Which?", "chosen": "This one.", "rejected": "No."}))
    service = counted(path)
    drawn = service.rows(0, 1)["rows"]
    assert len(drawn) == 2
    assert service.totals()["tokens"] == sum(len(row["ids"]) for row in drawn)
    service.close()


@pytest.mark.parametrize("packed", [False, True])
def test_encoded_rows_count(tmp_path: Path, packed: bool) -> None:
    options: dict[str, Any] = {"max_length": 512, "packing": "best-fit"} if packed else {}
    truetune.encode(str(DATA), str(TOKENIZER), tmp_path / "e", jobs=1, **options)
    service = counted(tmp_path / "e")
    totals = service.totals()
    assert (totals["failure"], totals["done"]) == (None, True)
    drawn = service.rows(0, 1)["rows"][0]
    figures, _ = service.background_count.counts.joined_counts_and_rows_per_kind()
    assert figures.tokens[0] == len(drawn["ids"])
    assert figures.supervised[0] == drawn["supervised"].count("1")
    service.close()


def test_filters_and_orders_are_what_they_say() -> None:
    service = counted(BROKEN, max_length=512)
    figures, _ = service.background_count.counts.joined_counts_and_rows_per_kind()
    longest = rows_of(service.select(RowFilter(min_tokens=100, sort="longest")))
    assert longest == sorted(
        (row for row in range(212) if figures.tokens[row] >= 100),
        key=lambda row: (-int(figures.tokens[row]), row),
    )
    least = rows_of(service.select(RowFilter(max_supervised=10, sort="least")))
    assert {0.0, *figures.supervised_share_by_row[least]} == {
        *figures.supervised_share_by_row[figures.supervised_share_by_row <= 0.1]
    }
    with_tools = rows_of(service.select(RowFilter(role="tool_call")))
    assert with_tools
    for number in with_tools:
        row = service.rows(number, 1)["rows"][0]
        assert "g" in row["source"], "the letter of tool calls"
    service.close()


def test_figures_of_files_and_a_file_alone(tmp_path: Path) -> None:
    lines = DATA.read_text(encoding="utf-8").splitlines(keepends=True)
    for name, part in (("a", lines[:20]), ("b", lines[20:50])):
        (tmp_path / f"{name}.jsonl").write_text("".join(part), encoding="utf-8")
    service = counted(tmp_path)
    files = {Path(file["name"]).name: file["rows"] for file in service.totals()["files"]}
    assert files == {"a.jsonl": 20, "b.jsonl": 30}
    only = service.select(RowFilter(file=str(tmp_path / "b.jsonl")))
    assert rows_of(only) == list(range(20, 50))
    longest = service.select(RowFilter(file=str(tmp_path / "b.jsonl"), sort="longest"))
    assert sorted(rows_of(longest)) == list(range(20, 50))
    service.close()


def test_all_files_are_counted_and_the_first_are_listed(tmp_path: Path) -> None:
    row = DATA.read_text(encoding="utf-8").partition("\n")[0]
    for number in range(MAX_NAMED_FILES + 5):
        (tmp_path / f"{number:03}.jsonl").write_text(f"{row}\n", encoding="utf-8")
    service = counted(tmp_path)
    totals = service.totals()
    service.close()
    assert totals["file_count"] == totals["rows"] == MAX_NAMED_FILES + 5
    assert len(totals["files"]) == MAX_NAMED_FILES


def test_a_row_with_exactly_the_share_of_a_bound_is_listed() -> None:
    """In floating point, 100 times the share of 29 tokens of 100 is less than 29."""
    supervised = np.arange(101, dtype=np.uint32)
    counts = count_tokens(
        101,
        np.repeat(np.arange(101), 100),
        np.zeros(101 * 100, np.uint8),
        (np.arange(100) < supervised[:, None]).ravel(),
    )
    for share in range(1, 101):
        exactly = RowFilter(min_supervised=share, max_supervised=share)
        rows = select_rows(counts, exactly, 101, rows_by_finding={}, rows_of_file=range(101))
        assert rows.tolist() == [share]


def test_a_filter_of_100_000_rows_takes_a_moment(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    service = counted(DATA)
    figures, _ = service.background_count.counts.joined_counts_and_rows_per_kind()
    again = rng.integers(0, len(figures.tokens), 100_000)
    kinds = (figures.tokens[again], figures.supervised[again], figures.kinds[again])
    service.background_count.counts.clear()
    service.background_count.counts.add(type(figures)(*kinds, figures.ledger))
    service.row_index.indexed = 100_000
    begun = time.perf_counter()
    service.select(RowFilter(role="user", min_tokens=50, min_supervised=10, sort="most"))
    assert time.perf_counter() - begun < 1
    service.close()


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return report_as_dict(truetune.check(data=str(BROKEN), tokenizer=str(TOKENIZER)))


@pytest.fixture(scope="module")
def server(result: dict[str, Any]) -> Iterator[ViewServer]:
    with serving(BROKEN, result=result) as running:
        yield running


def test_names_and_bounds_are_checked(server: ViewServer) -> None:
    for query in ("role=nobody", "sort=size", "min_tokens=-1", "max_supervised=101"):
        assert status(server, f"/{server.token}/select?{query}") == 400
    for query in ("finding=ROW999", "file=x"):
        assert status(server, f"/{server.token}/select?{query}") == 404
    found = answer(server, "select?finding=ROW003")
    assert len(rows_of(found)) == 6


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


def choose(page: Page, name: str, value: str) -> None:
    page.evaluate("document.querySelector('.filterfold').open = true")
    field = page.locator(f".filters [name={name}]")
    if field.evaluate("(field) => field.tagName") == "SELECT":
        field.select_option(value)
    else:
        field.fill(value)


def wait_until_counted(page: Page) -> None:
    expect(page.locator("[data-totals] li").first).to_be_visible()
    expect(page.locator("[data-counting]")).to_have_text("", timeout=60_000)


@pytest.mark.parametrize(("theme", "size"), [("light", DESK), ("dark", PHONE)])
def test_rows_are_filtered_and_sorted_in_a_browser(
    browser: Browser, server: ViewServer, theme: str, size: dict[str, int]
) -> None:
    with opened(browser, server.url, viewport=size, color_scheme=theme) as page:
        wait_until_counted(page)
        expect(page.locator("#entry-0 .preview")).to_have_text(
            re.compile(r"^Could order 64358 arr")
        )
        tiles = page.locator("[data-totals] .tile b").all_inner_texts()
        assert tiles[:3] == ["212", "25,838", "51.9 %"]
        choose(page, "finding", "any")
        expect(page.locator("[data-selection]")).to_contain_text("of 212 rows: with findings.")
        choose(page, "role", "system")
        choose(page, "min_tokens", "100")
        choose(page, "max_supervised", "60")
        choose(page, "sort", "longest")
        expect(page.locator("[data-selection]")).to_contain_text(
            "with findings, with system, at least 100 tokens, at most 60 % supervised, longest"
        )
        figures = page.locator(".entry .place:not(:empty)").all_inner_texts()
        lengths = [int(text.split(" tokens")[0].replace(",", "")) for text in figures]
        assert lengths == sorted(lengths, reverse=True)
        address = parse_qs(urlsplit(page.url).query)
        assert address == {
            "finding": ["any"],
            "role": ["system"],
            "min_tokens": ["100"],
            "max_supervised": ["60"],
            "sort": ["longest"],
        }
        page.evaluate("document.querySelectorAll('details').forEach((fold) => (fold.open = true))")
        assert cut_words(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert violations(page) == []
        page.get_by_role("button", name="clear filters").click()
        expect(page.locator("[data-selection]")).to_have_text("")
        assert not urlsplit(page.url).query


def test_a_link_opens_the_same_list_and_row(browser: Browser, server: ViewServer) -> None:
    link = f"{server.url}?finding=ROW003&sort=longest"
    with opened(browser, link) as page:
        expect(page.locator("[data-selection]")).to_contain_text("6 of 212 rows: with ROW003")
        expect(page.locator(".entry")).to_have_count(6)
        expect(page.locator(".entry[aria-selected=true]")).to_have_count(1)
        page.locator(".list").focus()
        first = page.locator("[data-title]").inner_text()
        page.keyboard.press("End")
        expect(page.locator("[data-title]")).not_to_have_text(first)
        shown = page.locator("[data-title]").inner_text()
        page.locator(".links a").click()
        link = page.url
    with opened(browser, link) as page:
        expect(page.locator("[data-title]")).to_have_text(shown)
        expect(page.locator(".entry")).to_have_count(6)
        assert page.locator(".filters [name=sort]").input_value() == "longest"


def test_a_link_to_a_role_opens_the_first_row_that_has_it(
    browser: Browser, server: ViewServer
) -> None:
    with opened(browser, f"{server.url}?role=tool_call") as page:
        expect(page.locator(".entry[aria-selected=true]")).to_have_count(1)
        assert page.locator(".entry").first.get_attribute("aria-selected") == "true"
        expect(page.locator(".sources")).to_contain_text("tool call")
    with opened(browser, f"{server.url}?role=reasoning") as page:
        expect(page.locator("[data-title]")).to_contain_text("row 0 ")


def test_what_was_not_checked_is_not_called_fine(browser: Browser) -> None:
    with serving(DATA) as plain, opened(browser, plain.url) as page:
        wait_until_counted(page)
        last = page.locator("[data-totals] .tile").last
        expect(last).to_contain_text("not checked: see --check")
        assert page.locator("[name=finding]").is_hidden()


def test_the_keyboard_reaches_every_filter(browser: Browser, server: ViewServer) -> None:
    with opened(browser, server.url) as page:
        wait_until_counted(page)
        page.locator(".filterfold summary").focus()
        names = []
        for _ in range(7):
            page.keyboard.press("Tab")
            names.append(page.evaluate("document.activeElement.name"))
        assert names == [
            "finding",
            "role",
            "min_tokens",
            "max_tokens",
            "min_supervised",
            "max_supervised",
            "sort",
        ]
        page.keyboard.press("l")
        expect(page.locator("[data-selection]")).to_contain_text("longest first")


def test_a_row_out_of_the_list_stays_where_a_link_names_it(
    browser: Browser, server: ViewServer
) -> None:
    with opened(browser, f"{server.url}?finding=ROW003#row=100") as page:
        expect(page.locator(".entry")).to_have_count(6)
        expect(page.locator("[data-title]")).to_contain_text("row 100 ")


def test_rows_in_a_page_are_filtered_without_a_server(browser: Browser, tmp_path: Path) -> None:
    report = truetune.check(data=str(BROKEN), tokenizer=str(TOKENIZER))
    (tmp_path / "page.html").write_text(html_page_of_report(report), encoding="utf-8")
    with opened(browser, tmp_path / "page.html") as page:
        choose(page, "role", "tool_call")
        choose(page, "sort", "shortest")
        expect(page.locator("[data-selection]")).to_contain_text("with tool call, shortest first")
        assert 0 < page.locator(".entry").count() < 212
        assert parse_qs(urlsplit(page.url).query) == {"role": ["tool_call"], "sort": ["shortest"]}


def test_rows_of_token_ids_count(tmp_path: Path) -> None:
    rows = [
        {"input_ids": [2, 5, 6, 3], "labels": [-100, -100, 6, 3]},
        {"input_ids": [2, 7, 3], "labels": [-100, 7, 3]},
    ]
    path = tmp_path / "ids.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    service = counted(path)
    figures, _ = service.background_count.counts.joined_counts_and_rows_per_kind()
    assert figures.tokens.tolist() == [4, 3]
    assert figures.supervised.tolist() == [2, 2]
    service.close()


def test_a_shortcut_that_is_wrong_voids_what_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    service = make_row_service(RunSpec(data=(str(DATA),), tokenizer=str(TOKENIZER)))
    service.row_index.index()
    asked: list[bool] = []
    prove = ConversationTokenCounter.prove

    def fail_once(counter: ConversationTokenCounter) -> None:
        asked.append(True)
        if len(asked) == 1:
            raise FastPathError("wrong")
        prove(counter)

    monkeypatch.setattr(ConversationTokenCounter, "prove", fail_once)
    service.background_count.run()
    assert len(asked) == 2
    assert service.background_count.is_done
    assert len(service.background_count.counts.joined_counts_and_rows_per_kind()[0].tokens) == 200
    service.close()


def test_a_count_that_fails_says_so_and_rows_are_shown(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("<b>no</b>")

    monkeypatch.setattr(ConversationTokenCounter, "count", fail)
    with serving(DATA) as server, opened(browser, server.url) as page:
        expect(page.locator("[data-counting]")).to_contain_text("RuntimeError('<b>no</b>')")
        expect(page.locator("[data-title]")).to_contain_text("row 0")


def test_the_count_of_a_packed_file_is_not_disturbed_by_jumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of both reads on from where it was: a packed file is unpacked twice, not at each step."""
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(DATA.read_bytes() * 20))
    starts: list[int] = []
    restart = TextReader._restart

    def note(reader: TextReader) -> None:
        starts.append(1)
        restart(reader)

    monkeypatch.setattr(TextReader, "_restart", note)
    monkeypatch.setattr(read_parts_of_files, "KEPT_BYTES", 1 << 16)
    service = make_row_service(RunSpec(data=(str(path),), tokenizer=str(TOKENIZER)))
    service.row_index = RowIndex(service.row_index.sources, stretch=1 << 14)
    service.row_index.index()
    assert service.row_index.total == 4000
    for row in range(0, 3000, 500):
        assert service.row_index.records(row, 10, for_count=True)
        assert service.row_index.records(3900, 10)
    assert len(starts) == 2
    service.close()
