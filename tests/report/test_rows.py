"""Rows as JSON: pieces, runs and paths point at the right characters; what a row should be stands beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import truetune
from tests.parts import available, folder
from tests.report.test_audited import audited
from truetune.data.conversation import Conversation, Origin
from truetune.demo import TOKENIZER
from truetune.report.page.choose_cited_rows_for_page import token_rows_of_report
from truetune.report.page.json_of_one_examples_tokens import (
    MAX_ROW_TOKENS,
    TokenRow,
    cut_row_to_limit,
    fit_rows_into_budget,
    row_of_batch_line,
)
from truetune.report.page.masks_by_marker_or_generation_tags import mask_after_last_marker
from truetune.report.page.render_rows_beside_ideal import TokenRowRenderer
from truetune.settings.run_spec import RunSpec
from truetune.settings.training_settings import Training

TEXT = st.text(st.characters(codec="utf-8"), max_size=30) | st.sampled_from(
    [
        "👩‍👩‍👧 日本語",
        "שלום \u202e",
        "  two",
        "\n\n",
        "e\u0301",
        "<|im_end|>",
        "🇩🇪🇫🇷",
        "naïve ﬁ",
        "\u3000",
    ]
)
TOKENIZERS = ["demo", "qwen3", "llama2-chat"]


@cache
def rendered(name: str, **changes: Any) -> TokenRowRenderer:
    return TokenRowRenderer(
        RunSpec(tokenizer=str(TOKENIZER if name == "demo" else folder(name)), **changes)
    )


def chat(*contents: str, **more: Any) -> Conversation:
    messages = [
        {"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(contents)
    ]
    return Conversation(Origin("a.jsonl", 1, 0), "messages", messages, **more)


def places(row: TokenRow) -> Iterator[tuple[str, int, int]]:
    """(path, first character, one past the last) of each token, as the page counts them (`spelling.js`)."""
    path, at, last, runs = "", -1, -1, iter([*row["runs"], [len(row["ids"]), "", -1, -1, None]])
    following = next(runs)
    for i, piece in enumerate(row["pieces"]):
        inside = "\udc80" <= piece[:1] <= "\udcbf"
        if following[0] == i:
            _, path, at, last, _ = following
            at += inside and at >= 0
            following = next(runs)
        if at < 0:
            yield path, -1, -1
            continue
        end = at + sum(not "\udc80" <= unit <= "\udcbf" for unit in piece)
        yield path, at - inside, min(end, last)
        at = end


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=25, deadline=None)
@given(question=TEXT, answer=TEXT)
def test_pieces_and_runs_point_at_the_characters(name: str, question: str, answer: str) -> None:
    if name != "demo" and not available(name):
        pytest.skip("not to be had here")
    contents = {
        "messages[0].content": f"two words {question}",
        "messages[1].content": f"two more {answer}",
    }
    (row,) = rendered(name).token_rows(chat(*contents.values()))
    count = len(row["ids"])
    assert {len(row[key]) for key in ("pieces", "source", "supervised")} == {count}
    found = list(places(row))
    exact = 0
    for (path, start, end), piece in zip(found, row["pieces"], strict=True):
        if path and start >= 0 and piece.isprintable():
            assert end <= len(contents[path]), "a token that goes on behind its field"
            text = contents[path][start:end]
            assert text == piece or (
                piece.startswith(text) and end in (start, len(contents[path]))
            ), (path, piece)
            exact += text == piece
    assert {path for path, _, _ in found} <= {"", *contents}
    assert exact
    assert json.loads(json.dumps(row)) == row


def test_a_token_that_goes_on_behind_its_field_claims_no_more_than_the_field() -> None:
    made = rendered("demo").token_rows(
        Conversation(Origin("a", 1, 0), "prompt-completion", prompt="one t", completion="wo")
    )
    found = [
        (piece, *place)
        for row in made[:1]
        for piece, place in zip(row["pieces"], places(row), strict=True)
    ]
    assert [start_end for piece, path, *start_end in found if path == "prompt"][-1][1] == len(
        "one t"
    )
    assert any(len(piece) > end - start for piece, path, start, end in found if path == "prompt"), (
        found
    )


def test_a_space_that_the_tokenizer_adds_holds_no_character() -> None:
    if not available("phi3"):
        pytest.skip("not to be had here")
    (row,) = rendered("phi3").token_rows(chat("one", "日本"))
    found = [
        place
        for piece, place in zip(row["pieces"], places(row), strict=True)
        if place[0] and piece in " 日"
    ]
    assert found == [("messages[1].content", 0, 0), ("messages[1].content", 0, 1)]


def test_a_character_of_several_tokens() -> None:
    (row,) = rendered("demo").token_rows(chat("ab👩cd", "e"))
    own = [
        (piece, start, end)
        for piece, (path, start, end) in zip(row["pieces"], places(row), strict=True)
        if path == "messages[0].content"
    ]
    spelled = b"".join(piece.encode("utf-8", "surrogateescape") for piece, _, _ in own).decode()
    assert spelled.startswith("ab👩cd"[: len(spelled)])
    assert [start for _, start, _ in own] == sorted(start for _, start, _ in own)
    assert {start for piece, start, _ in own if not piece.isascii()} == {2}


@pytest.mark.parametrize(
    ("changes", "supervised"),
    [({"mask_by": "response-marker", "response_marker": "<|im_start|>assistant\n"}, "last"),
     ({"mask_by": "generation-tags"}, "none"), ({"learn": {"what": "all"}}, "all")],
)  # fmt: skip
def test_what_the_contract_wants_stands_beside_another_mask(
    changes: dict[str, Any], supervised: str
) -> None:
    spec = RunSpec(tokenizer=str(TOKENIZER), **changes)
    (row,) = TokenRowRenderer(spec).token_rows(chat("one", "two", "three", "four"))
    (contract,) = rendered("demo").token_rows(chat("one", "two", "three", "four"))
    assert row["ids"] == contract["ids"]
    assert row["expected"] == contract["supervised"] != row["supervised"]
    assert "expected" not in contract
    learned = [path for i, (path, _, _) in enumerate(places(row)) if row["supervised"][i] == "1"]
    everything = {"", *(f"messages[{i}].content" for i in range(4))}
    assert (
        set(learned)
        == {"last": {"", "messages[3].content"}, "none": set(), "all": everything}[supervised]
    )


def test_generation_tags_are_read_as_transformers_reads_them(tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    answered = "{% generation %}{{ m.content }}{% endgeneration %}<|im_end|>\n"
    turn = (
        "{% if m.role == 'assistant' %}"
        + answered
        + "{% else %}{{ m.content }}<|im_end|>\n{% endif %}"
    )
    template.write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        + turn
        + "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    spec = RunSpec(tokenizer=str(TOKENIZER), template=str(template), mask_by="generation-tags")
    (row,) = TokenRowRenderer(spec).token_rows(chat("one", "two"))
    learned = [path for i, (path, _, _) in enumerate(places(row)) if row["supervised"][i] == "1"]
    assert set(learned) == {"messages[1].content"}
    assert row["expected"].count("1") == row["supervised"].count("1") + 1, (
        "the stop token is not in the tags"
    )


def test_a_marker_that_is_not_there_leaves_nothing() -> None:
    ids = np.array([5, 1, 2, 7, 1, 2, 9], np.int32)
    assert mask_after_last_marker(np.array([1, 2], np.int32), ids).tolist() == [False] * 6 + [True]
    assert not mask_after_last_marker(np.array([2, 1], np.int32), ids).any()
    assert not mask_after_last_marker(np.array([], np.int32), ids).any()
    assert not mask_after_last_marker(np.array([1] * 9, np.int32), ids).any()


def test_a_row_without_its_end_has_a_twin_with_it() -> None:
    (row,) = rendered("demo").token_rows(
        Conversation(Origin("a", 1, 0), "text", text="Once upon a time")
    )
    assert row["twin"]["ids"][:-1] == row["ids"]
    assert row["twin"]["supervised"][-1] == "1"
    assert "end token" in row["twin_name"]
    (ended,) = TokenRowRenderer(RunSpec(tokenizer=str(TOKENIZER), append_eos=True)).token_rows(
        Conversation(Origin("a", 1, 0), "text", text="Once upon a time")
    )
    assert "twin" not in ended


def test_both_sides_of_a_pair_and_verdicts() -> None:
    pair = chat(
        "one", "two", prompt_messages=1, rejected=[{"role": "assistant", "content": "three"}]
    )
    made = rendered("demo").token_rows(pair)
    assert [row["title"] for row in made] == ["chosen", "rejected"]
    assert [
        "".join(row["pieces"]).count(text) for row, text in zip(made, ("two", "three"), strict=True)
    ] == [1, 1]
    (wanted,) = rendered("demo").token_rows(chat("one", "two", prompt_messages=1, label=True))
    (unwanted,) = rendered("demo").token_rows(chat("one", "two", prompt_messages=1, label=False))
    assert (wanted["title"], unwanted["title"]) == ("wanted answer", "unwanted answer")


def test_a_report_shows_both_sides_and_rows_that_are_refused(tmp_path: Path) -> None:
    data, template = tmp_path / "d.jsonl", tmp_path / "t.jinja"
    rows = [{"prompt": "one", "chosen": "two", "rejected": "three"}] * 2
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = truetune.check(data=str(data), tokenizer=str(TOKENIZER))
    assert [row["title"] for row in token_rows_of_report(report)][:2] == ["chosen", "rejected"]
    data.write_text(
        "".join(
            json.dumps(
                {
                    "messages": [
                        {"role": role, "content": "x"},
                        {"role": "assistant", "content": "y"},
                    ]
                }
            )
            + "\n"
            for role in ("user", "system")
        )
    )
    template.write_text(
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
        "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    report = truetune.check(data=str(data), tokenizer=str(TOKENIZER), template=str(template))
    refused = [row for row in token_rows_of_report(report) if row.get("error")]
    assert [(row["row"], row["line"], row["ids"]) for row in refused] == [(1, 2, [])]


def test_a_row_that_can_not_be_rendered_says_why(tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    template.write_text("{{ raise_exception('only <b>short</b> chats') }}")
    (row,) = TokenRowRenderer(RunSpec(tokenizer=str(TOKENIZER), template=str(template))).token_rows(
        chat("one", "two")
    )
    assert row["ids"] == []
    assert "only <b>short</b> chats" in row["error"]
    (nothing,) = rendered("demo").token_rows(
        Conversation(Origin("a", 1, 0), "messages", [{"role": "user", "content": "x"}])
    )
    assert nothing["supervised"].count("1") == 0


def test_lines_of_an_audit() -> None:
    report = audited(["How many figs?", "Nine"])
    rows = token_rows_of_report(report)
    assert len(rows) == len(report.samples)
    for row, sample in zip(rows, report.samples, strict=True):
        assert row == row_of_batch_line(sample)
        wrong = [
            label
            for label, id in zip(row["labels"], row["ids"], strict=True)
            if label not in (None, id)
        ]
        assert wrong == [5], "a pad whose label is another token"
        assert [i for i, label in enumerate(row["labels"]) if label is not None] == [
            i for i, bit in enumerate(row["supervised"]) if bit == "1"
        ]


def test_a_row_says_what_a_limit_leaves_of_it() -> None:
    pair = chat(
        "one",
        "two",
        prompt_messages=1,
        rejected=[{"role": "assistant", "content": "three and more of it"}],
    )
    chosen, rejected = (len(row["ids"]) for row in rendered("demo").token_rows(pair))
    limited = rendered("demo", max_length=chosen).token_rows(pair)
    assert [row.get("kept") for row in limited] == [None, [0, chosen]]
    from_end = TokenRowRenderer(
        RunSpec(
            tokenizer=str(TOKENIZER),
            max_length=10,
            training=Training(other={"truncation_mode": "keep_end"}),
        )
    )
    assert [row["kept"] for row in from_end.token_rows(pair)] == [
        [chosen - 10, chosen],
        [rejected - 10, rejected],
    ]
    (alone,) = from_end.token_rows(chat("one", "two"))
    assert alone["kept"] == [0, 10]
    (text,) = rendered("demo", max_length=3).token_rows(
        Conversation(Origin("a", 1, 0), "text", text="Once upon a time")
    )
    assert text["kept"] == text["twin"]["kept"] == [0, 3]


@pytest.mark.parametrize(
    ("settings", "form"),
    [
        ({"encode": {"overflow": "split"}}, "messages"),
        ({"training": {"packing_strategy": "wrapped"}}, "messages"),
        ({"training": {"packing_strategy": "greedy"}}, "text"),
    ],
)
def test_no_limit_is_drawn_where_long_rows_go_on(settings: dict[str, Any], form: str) -> None:
    row = (
        chat("one", "two")
        if form == "messages"
        else Conversation(Origin("a", 1, 0), "text", text="Once upon a time")
    )
    assert "kept" in rendered("demo", max_length=3).token_rows(row)[0]
    going_on = TokenRowRenderer(RunSpec(tokenizer=str(TOKENIZER), max_length=3, **settings))
    assert "kept" not in going_on.token_rows(row)[0]


def test_a_page_holds_so_many_tokens_and_says_what_it_leaves_out() -> None:
    (row,) = rendered("demo").token_rows(chat("one " * 50, "two"))
    size = len(row["ids"])
    found = list(fit_rows_into_budget([row] * 5, "row", budget=3 * size))
    assert [len(one["ids"]) for one in found] == [size] * 3 + [0]
    assert found[-1]["error"].startswith("2 more rows")
    assert list(fit_rows_into_budget([row], "row", budget=size)) == [row]


def test_a_very_long_row_is_cut_and_says_so() -> None:
    (row,) = rendered("demo").token_rows(chat("one " * 50, "two"))
    short = cut_row_to_limit(row | {"twin": row}, 20)
    assert {len(short[key]) for key in ("ids", "pieces", "source", "supervised")} == {20}
    assert all(run[0] < 20 for run in short["runs"])
    assert short["error"] == f"the first 20 of its {len(row['ids'])} tokens are shown"
    assert cut_row_to_limit(row) is row
    assert MAX_ROW_TOKENS >= 20_000
