"""The token view over data and over encoded data: in the browser, row by row from the server, and in a notebook."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as arrow
import pytest
from click.testing import CliRunner
from playwright.sync_api import Route
from pyarrow import parquet

import truetune
from tests.browser import chromium, opened
from tests.viewing.conftest import serving
from truetune.cli.view_rows_in_browser_command import view as command
from truetune.data.find_data_files import find_data_files_of_paths
from truetune.data.read_file_records import Record
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.demo import DATA, TOKENIZER
from truetune.errors import DataError, SpecError, UsageError
from truetune.report.page.json_of_one_examples_tokens import (
    MAX_ROW_TOKENS,
    TokenRow,
    row_without_tokens,
)
from truetune.report.page.render_rows_beside_ideal import TokenRowRenderer
from truetune.settings.run_spec import RunSpec
from truetune.viewing.row_index import RowIndex, SourcedRecords
from truetune.viewing.row_service import RowService
from truetune.viewing.token_counts_of_rows import TokenCounter
from truetune.viewing.token_rows_of_conversations import ConversationRows
from truetune.viewing.view import View, make_row_service, start_view_server, view


def many(path: Path, rows: int) -> Path:
    """Chats that name their number."""
    with path.open("w") as file:
        for i in range(rows):
            messages = [
                {"role": "user", "content": f"Which one is number {i}?"},
                {"role": "assistant", "content": f"It is {i}."},
            ]
            file.write(json.dumps({"messages": messages}) + "\n")
    return path


class Slow:
    """Draws when it is told to."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.calls: list[str] = []

    def rows(self, first: int, found: SourcedRecords) -> Iterator[list[TokenRow]]:
        self._wait()
        yield [row_without_tokens(None, "", row=first)]

    def faulty(self, first: int, found: SourcedRecords) -> int | None:
        self._wait()
        return None

    def _wait(self) -> None:
        self.calls.append("begun")
        self.begun.set()
        assert self.go_on.wait(60)
        self.calls.append("done")

    def searched_text(self, record: Record) -> str:
        return ""

    def token_counter(self, only_reference: bool) -> TokenCounter:
        raise NotImplementedError

    def forget(self) -> None: ...


@pytest.mark.parametrize(
    "asks", [lambda made: made.rows(0, 1), lambda made: made.faulty(0)], ids=["rows", "faulty"]
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_what_closes_waits_for_what_is_under_way_and_reads_no_more(
    tmp_path: Path, name: str, asks: Callable[[RowService], object]
) -> None:
    lines = many(tmp_path / "a.jsonl", 2000)
    if name == "a.parquet":
        rows = [json.loads(line) for line in lines.read_text().splitlines()]
        parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / name)
    maker = Slow()
    made = RowService(lambda: RowIndex(find_data_files_of_paths((str(tmp_path / name),))), maker)
    made.start()
    made.row_index.wait(1999, 60)
    drawing = [threading.Thread(target=asks, args=(made,)) for _ in range(3)]
    for thread in drawing:
        thread.start()
    assert maker.begun.wait(60)
    calls: list[str] = []

    def close() -> None:
        made.close()
        calls.extend(maker.calls)

    closing = threading.Thread(target=close)
    closing.start()
    made.row_index.wait(10**6, 60)
    maker.go_on.set()
    for thread in (*drawing, closing):
        thread.join()
    assert calls == maker.calls
    assert calls[-1] == "done"
    assert made.rows(500, 5)["rows"] == [] == made.row_index.records(500, 5)
    assert made.search("number 7", 0)["row"] is None
    assert made.faulty(0)["row"] is None
    assert not [thread for thread in threading.enumerate() if thread.name == "truetune rows"]


def spec(data: Path, **settings: Any) -> RunSpec:
    return RunSpec(data=(str(data),), tokenizer=str(TOKENIZER), **settings)


def answers(data: Path, **settings: Any) -> RowService:
    made = make_row_service(spec(data, **settings))
    made.row_index.index()
    return made


def test_the_browser_scrolls_and_jumps_over_rows_that_the_server_gives(tmp_path: Path) -> None:
    rows = 30_000
    with (
        serving(many(tmp_path / "a.jsonl", rows)) as server,
        chromium() as browser,
        opened(browser, f"{server.url}#row=29000") as page,
    ):
        page.wait_for_selector(".tokens .t")
        assert page.inner_text("[data-title]").startswith("row 29,000")
        assert "It is 29000." in page.inner_text(".tokens").replace("\n", "")
        for number in (rows - 1, 0, 12_345):
            page.fill("[data-jump]", str(number))
            page.keyboard.press("Enter")
            page.wait_for_function(
                "(row) => document.querySelector('[data-title]').textContent.startsWith(row)",
                arg=f"row {number:,} ",
            )
            assert f"It is {number}." in page.inner_text(".tokens").replace("\n", "")
        page.fill("[data-jump]", "5000000")
        page.keyboard.press("Enter")
        page.wait_for_selector(
            ".said:has-text('there is no row 5,000,000: the last is row 29,999')"
        )
        page.wait_for_selector("[data-title]:has-text('row 29,999 ')")
        drawn = page.locator(".entry").count()
        assert 0 < drawn < 100, "only what is in view is drawn"
        page.evaluate("document.querySelector('.list').scrollTop = 0")
        page.wait_for_selector("#entry-3 .place:not(:empty)")
        assert "tokens" in page.inner_text("#entry-3")


def test_what_the_list_has_scrolled_on_from_is_not_asked_for(tmp_path: Path) -> None:
    scroll = """async (row) => {
      document.querySelector('.list').scrollTop = 64 * row;
      for (const wait of [requestAnimationFrame, requestAnimationFrame, (done) => setTimeout(done, 100)])
        await new Promise(wait);
    }"""
    held, free = list[Route](), threading.Event()
    with (
        serving(many(tmp_path / "a.jsonl", 4000)) as server,
        chromium() as browser,
        opened(browser, server.url) as page,
    ):
        page.wait_for_selector("#entry-3 .place:not(:empty)")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.route(
            "**/rows?*", lambda route: route.continue_() if free.is_set() else held.append(route)
        )
        for row in (500, 1000, 1500, 2000, 2500):
            page.evaluate(scroll, row)
        free.set()
        for route in held:
            route.continue_()
        page.wait_for_selector("#entry-2505 .place:not(:empty)")
        wanted = [url for url in asked if "/rows?" in url]
        starts = {int(parse_qs(urlsplit(url).query)["start"][0]) for url in wanted}
    assert 2500 in starts
    assert not {980, 1000, 1480, 1500} & starts


def test_a_search_that_fails_says_why_and_so_does_a_view_that_was_ended(tmp_path: Path) -> None:
    path = many(tmp_path / "a.jsonl", 3)
    with chromium() as browser, serving(path) as server:
        page = browser.new_page()
        page.goto(server.url)
        page.wait_for_selector(".tokens .t")
        many(path, 4)
        page.fill("[data-find]", "number 3")
        page.keyboard.press("Enter")
        page.wait_for_selector(
            ".said[role=status]:has-text('a.jsonl: changed since this page was opened; load')"
        )
        page.route("**/search*", lambda route: route.abort())
        page.click("[data-do=finding]")
        page.wait_for_selector(".said:has-text('does truetune view still run?')")


def test_rows_are_those_that_show_shows(tmp_path: Path) -> None:
    made = answers(DATA)
    rendered = TokenRowRenderer(spec(DATA))
    expected = [
        row
        for _, conversation in zip(range(9), read_conversations([str(DATA)]), strict=False)
        for row in rendered.token_rows(conversation)
    ]
    assert made.rows(0, 9)["rows"] == expected
    assert made.rows(4, 2)["rows"] == expected[4:6]
    assert made.rows(0, 9)["rows"] == expected


def test_several_examples_of_a_row_stand_together(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(
        "".join(
            json.dumps({"prompt": f"{i}?", "chosen": "yes", "rejected": "no"}) + "\n"
            for i in range(3)
        )
    )
    found = answers(path).rows(0, 3)["rows"]
    assert [(row["row"], row["title"]) for row in found] == [
        (i, side) for i in range(3) for side in ("chosen", "rejected")
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_length": 256, "packing": "best-fit"},
        {"trainer": "axolotl"},
        {"trainer": "llama-factory", "max_length": 256, "packing": "best-fit"},
    ],
)
def test_encoded_data(tmp_path: Path, options: dict[str, Any]) -> None:
    encoded = truetune.encode(str(DATA), str(TOKENIZER), tmp_path / "e", jobs=1, **options)
    made = answers(tmp_path / "e")
    total = made.row_index.total
    assert total == (encoded.counts["packs"] or encoded.counts["documents"])
    assert made.notice is None
    rows = made.rows(0, min(64, total))["rows"]
    assert not any(row.get("error") for row in rows)
    texts = {row.origin.row: row for row in read_conversations([str(DATA)])}
    for row in rows:
        assert len(row["origins"]) == max(row["documents"]) + 1
        for number, (file, line, origin) in enumerate(row["origins"]):
            own = [i for i, document in enumerate(row["documents"]) if document == number]
            text = (
                "".join(row["pieces"][i] for i in own).encode("utf-8", "surrogateescape").decode()
            )
            assert texts[origin].messages[-1]["content"].strip() in text
            assert (file, line) == (DATA.name, texts[origin].origin.line)
            if "positions" in row:
                assert [row["positions"][i] for i in own] == list(range(len(own)))
        learned = "".join(
            p for p, bit in zip(row["pieces"], row["supervised"], strict=True) if bit == "1"
        )
        assert texts[row["origins"][0][2]].messages[-1]["content"].split()[-1] in learned
    assert made.search("thursday", 0)["row"] is not None
    assert made.faulty(0)["row"] is None


def test_encoded_data_needs_its_tokenizer(tmp_path: Path) -> None:
    truetune.encode(str(DATA), str(TOKENIZER), tmp_path / "e", jobs=1)
    with pytest.raises(SpecError, match="name its tokenizer with -t"):
        make_row_service(RunSpec(data=(str(tmp_path / "e"),)))
    other = tmp_path / "other"
    other.mkdir()
    for path in TOKENIZER.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    config = json.loads((other / "tokenizer_config.json").read_text()) | {"model_max_length": 7}
    (other / "tokenizer_config.json").write_text(json.dumps(config))
    notice = make_row_service(RunSpec(data=(str(tmp_path / "e"),), tokenizer=str(other))).notice
    assert notice is not None
    assert "tokenizer_config.json differ" in notice
    (tmp_path / "e" / "manifest.json").write_text("{}")
    with pytest.raises(DataError, match="encode again"):
        make_row_service(spec(tmp_path / "e"))


def test_a_notebook_holds_the_rows_in_a_frame(tmp_path: Path) -> None:
    made = view(str(many(tmp_path / "<b>.jsonl", 500)), str(TOKENIZER), rows=[3, 400, 9999, 4])
    assert isinstance(made, View)
    assert [row["row"] for row in made.rows] == [3, 4, 400]
    assert "rows shown: 3" in repr(made)
    html = made._repr_html_()
    assert html.startswith('<iframe sandbox="allow-scripts" srcdoc="')
    assert "<b>" not in html
    assert "connect-src" not in html
    assert len(view(many(tmp_path / "b.jsonl", 30), TOKENIZER).rows) == 20
    with pytest.raises(DataError):
        view(tmp_path / "none.jsonl", TOKENIZER)


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    run = CliRunner().invoke
    for arguments, kind in (
        ([str(tmp_path / "no.jsonl"), "-t", str(TOKENIZER)], DataError),
        ([str(DATA)], SpecError),
        ([], UsageError),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path)
            assert isinstance(run(command, arguments).exception, kind)
    with serving(DATA) as server, pytest.raises(UsageError, match="--port"):
        start_view_server(spec(DATA), port=server.server_address[1])


def test_settings_name_the_data(tmp_path: Path) -> None:
    (tmp_path / "truetune.yaml").write_text(f"data: {DATA}\ntokenizer: {TOKENIZER}\n")
    from truetune.cli.shared_options import read_settings_of_run_with_data

    found: list[RunSpec] = []
    probe = type(command)(
        "view",
        params=command.params,
        callback=lambda row, port, no_open, result, checks, **o: found.append(
            read_settings_of_run_with_data(o)
        ),
    )
    CliRunner().invoke(probe, [str(tmp_path / "truetune.yaml")], catch_exceptions=False)
    assert [source.path for source in find_data_files_of_paths(found[0].data)] == [DATA]


@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.jsonl", "a.parquet"])
def test_search_finds_a_text_however_the_file_spells_it(tmp_path: Path, name: str) -> None:
    rows = [
        {"text": f"row {i}, a/b", "more": 'Don\'t say "\u00e9so"' if i == 17 else ""}
        for i in range(30)
    ]
    if name == "a.csv":
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows([rows[0].keys(), *(row.values() for row in rows)])
    elif name == "a.parquet":
        parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / name, row_group_size=7)
    else:
        lines = "\n".join(json.dumps(row) for row in rows)
        (tmp_path / name).write_text(json.dumps(rows) if name == "a.json" else lines)
    made = RowService(
        lambda: RowIndex(find_data_files_of_paths((str(tmp_path / name),)), stretch=90),
        ConversationRows(spec(tmp_path / name)),
    )
    made.row_index.index()
    for text in ("row 17", "DON'T", 'say "\u00e9so"', '"\u00c9SO"'):
        assert [made.search(text, start)["row"] for start in (0, 16, 17, 18)] == [
            17,
            17,
            17,
            None,
        ], text
    assert made.search("17, a/b", 3)["row"] == 17
    made.close()


def test_answers_with_long_rows_end_early_and_go_on(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text(
        "".join(json.dumps({"text": f"{i} " + "a b " * 30_000}) + "\n" for i in range(7))
    )
    made, found = answers(path, append_eos=True), list[int]()
    while rows := made.rows(len(found), 7)["rows"]:
        assert len(rows) < 7
        assert all(
            len(row["ids"]) == MAX_ROW_TOKENS and "tokens are shown" in row["error"] for row in rows
        )
        found += [row["row"] for row in rows]
    assert found == list(range(7))
    assert len(view(path, TOKENIZER, rows=7, append_eos=True).rows) == 7


def test_a_report_or_a_check_marks_rows_and_not_both(tmp_path: Path) -> None:
    words = [str(DATA), "-t", str(TOKENIZER), "--check", "--report", str(tmp_path / "result.json")]
    with pytest.raises(UsageError, match="give one of them"):
        CliRunner().invoke(command, words, catch_exceptions=False, standalone_mode=False)
    with pytest.raises((DataError, OSError)):
        CliRunner().invoke(
            command, [*words[:3], *words[4:]], catch_exceptions=False, standalone_mode=False
        )
