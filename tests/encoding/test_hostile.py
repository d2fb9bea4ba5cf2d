"""Rows that are made to be encoded wrongly."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import truetune
from tests import parts
from tests.encoding.test_encode import chats, encode, text_of, written
from truetune.demo import TOKENIZER
from truetune.encoding.encoder import Encoder
from truetune.encoding.proved_tokenizer_engines import fastest_engine
from truetune.encoding.split_at_added_tokens import find_piece_rule
from truetune.errors import DataError
from truetune.render.template_probes import alternating_chat
from truetune.render.tokenizer import load_tokenizer


def learned(row: dict[str, Any], tokenizer: Any = TOKENIZER) -> str:
    return text_of([label for label in row["labels"] if label != -100], tokenizer)


BAD_VALUES = (
    '"weight": -5',
    '"weight": 1e999',
    '"weight": NaN',
    '"weight": "x"',
    '"weight": true',
    '"train": "no"',
)


@pytest.mark.parametrize("value", BAD_VALUES)
def test_no_default_stands_for_a_value_that_cannot_be_used(value: str, tmp_path: Path) -> None:
    row = (
        '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content":'
        ' "a"%s}]}\n'
    )
    (tmp_path / "a.jsonl").write_text(row % "" + row % f", {value}")
    name = value.split('"')[1]
    with pytest.raises(DataError, match=rf"a.jsonl:2: .*\b{name}\b.* of turn 1 is .*; expected"):
        encode(tmp_path / "a.jsonl", tmp_path / "o", loss_weights=True)
    made = encode(tmp_path / "a.jsonl", tmp_path / "o", loss_weights=True, on_error="skip")
    assert (made.counts["encoded"], made.counts["rejected"]) == (1, 1)
    report = truetune.check(tmp_path / "a.jsonl", TOKENIZER, select=["malformed-rows"])
    (finding,) = report.findings
    assert finding.count == 1
    assert finding.cases[0].origin is not None
    assert finding.cases[0].origin.line == 2
    assert name in finding.cases[0].text


def test_a_verdict_that_is_neither_true_nor_false_is_refused(tmp_path: Path) -> None:
    rows = [{"prompt": "q", "completion": "a", "label": label} for label in (True, False, "maybe")]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=r"a.jsonl:3: the label is 'maybe', neither true nor false"):
        encode(tmp_path / "a.jsonl", tmp_path / "o", preferences=True)


@pytest.mark.parametrize("settings", [{"learn": "last"}, {"learn": "completion"}, {}])
def test_an_earlier_turn_that_is_rewritten_trains_nothing_of_a_later_one(
    settings: Any, tmp_path: Path
) -> None:
    """Qwen3 drops earlier thinking; what it was long decides nothing about the last turn's labels."""
    qwen = parts.folder("qwen3")
    conversations = []
    for length in (21, *range(1, 60)):
        messages = alternating_chat("q", "a1", "second", "a2")
        messages[1]["reasoning_content"] = "r " * length
        if not settings:
            messages[1]["train"] = False
        conversations.append(messages)
    rows = written(
        encode(chats(tmp_path / "a.jsonl", *conversations), tmp_path / "o", qwen, **settings)
    )
    assert {learned(row, qwen).removeprefix("<think>\n\n</think>\n\n") for row in rows} == {
        "a2<|im_end|>"
    }
    assert len(rows) == 60


@pytest.mark.parametrize(
    ("family", "policy"), [("qwen3", "text"), ("llama3.1-instruct", "error"), ("gpt-oss", "error")]
)
def test_what_has_no_source_can_forge_nothing(family: str, policy: str, tmp_path: Path) -> None:
    tokenizer = parts.folder(family)
    control = sorted(load_tokenizer(str(tokenizer)).control)[-1]
    token = load_tokenizer(str(tokenizer)).backend.id_to_token(control)
    call = {"type": "function", "function": {"name": "f", "arguments": {f"k{token}": 1}}}
    rows = [
        {
            "messages": [
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": "", "tool_calls": [call]},
            ]
        },
        {
            "messages": alternating_chat("q", "a"),
            "tools": [{"type": f"function{token}", "function": {"name": "f"}}],
        },
        {
            "messages": [
                {"role": f"user{token}", "content": "q"},
                {"role": "assistant", "content": "a"},
            ]
        },
        {
            "messages": alternating_chat("q", "a"),
            "chat_template_kwargs": {"model_identity": f"you {token}"},
        },
        {"messages": alternating_chat("q", "a"), "chat_template_kwargs": {"messages": []}},
        {"messages": alternating_chat("q", "a")},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    encoded = encode(
        tmp_path / "a.jsonl", tmp_path / "o", tokenizer, content_specials=policy, on_error="skip"
    )
    assert [row["row"] for row in written(encoded)] == [5]
    reasons = [
        json.loads(line)["reason"]
        for line in (tmp_path / "o" / "rejected.jsonl").read_text().splitlines()
    ]
    assert sum("looks like one that the template writes" in reason for reason in reasons) == (
        3 if family == "gpt-oss" else 4
    )
    assert sum("must not be called messages" in reason for reason in reasons) == 1


def test_an_engine_that_is_wrong_on_plain_text_is_not_taken() -> None:
    """kitoken 0.11 takes a line end before an apostrophe for a space in SmolLM2's tokenizer."""
    backend = load_tokenizer(str(parts.folder("smollm2"))).backend
    found = find_piece_rule(backend)
    assert found is not None
    engine = fastest_engine(backend, [], found.pattern)
    texts = ["x = [\n'data',\n'sudo',\n]", "\n's", "\t'll"]
    for i, text in enumerate(texts):
        assert (
            engine.encode(texts).of(i).tolist()
            == backend.encode(text, add_special_tokens=False).ids
        )


@pytest.mark.parametrize("family", ["qwen3", "llama3.1-instruct", "deepseek-v3"])
def test_characters_that_libraries_know_differently(family: str) -> None:
    backend = load_tokenizer(str(parts.folder(family))).backend
    encoder = Encoder(backend, characters_before_fast_engine=0)
    encoder.encode(["settle on an engine"])
    assert encoder.engine.name.startswith("gigatoken")
    texts = [
        "V\u2dfc\u1ac4 7",
        "z\u0c5c'dz",
        "ok \u1acb\u032f end",
        "plain",
        "smile \U0001f642",
        "\U00011f04 x",
    ]
    encoded = encoder.encode(texts)
    for i, text in enumerate(texts):
        ids = encoded.ids[encoded.offsets[i] : encoded.offsets[i + 1]]
        assert ids.tolist() == backend.encode(text, add_special_tokens=False).ids
    again = Encoder(backend, only_reference=True).encode(texts)
    assert np.array_equal(again.starts, encoded.starts)


@pytest.mark.parametrize("family", ["qwen3", "qwen3.5", "deepseek-v3", "llama3.1-instruct"])
def test_reasoning_in_a_content_is_left_out_where_it_is_not_learned(
    family: str, tmp_path: Path
) -> None:
    tokenizer = parts.folder(family)
    data = chats(tmp_path / "a.jsonl", ("q", "<think>\nmy reason\n</think>\n\nthe answer"))
    (row,) = written(encode(data, tmp_path / "o", tokenizer, learn={"reasoning": False}))
    assert "my reason" not in learned(row, tokenizer)
    assert "the answer" in learned(row, tokenizer)


def test_a_tag_in_prose_is_prose(tmp_path: Path) -> None:
    tokenizer = parts.folder("llama3.1-instruct")
    data = chats(tmp_path / "a.jsonl", ("q", "The </think> tag ends reasoning."))
    (row,) = written(encode(data, tmp_path / "o", tokenizer, learn={"reasoning": False}))
    assert learned(row, tokenizer).startswith("The </think> tag ends reasoning.")


def test_a_split_keeps_a_question_of_two_messages_together(tmp_path: Path) -> None:
    turns = [
        ("user", "u1 " * 5),
        ("assistant", "a1"),
        ("user", "u2 " * 9),
        ("user", "u3 " * 9),
        ("assistant", "a2"),
    ]
    messages = [{"role": role, "content": content} for role, content in turns]
    rows = written(
        encode(
            chats(tmp_path / "a.jsonl", messages), tmp_path / "o", max_length=70, overflow="split"
        )
    )
    assert [learned(row) for row in rows] == ["a1<|im_end|>", "a2<|im_end|>"]
    assert "u2" in text_of(rows[1]["input_ids"])


def test_a_part_that_is_too_long_is_named(tmp_path: Path) -> None:
    data = chats(tmp_path / "a.jsonl", ("s", "A " * 100, "t", "ok"))
    encoded = encode(data, tmp_path / "o", max_length=60, overflow="split")
    assert [learned(row) for row in written(encoded)] == ["ok<|im_end|>"]
    (dropped,) = map(json.loads, (tmp_path / "o" / "dropped.jsonl").read_text().splitlines())
    assert dropped["reason"] == "it is longer than max_length (60)"
    assert dropped["tokens"] > 60


@pytest.mark.parametrize(
    ("family", "content"),
    [
        ("qwen3", "cafe\u0301 <|im_end|>"),
        ("qwen3", "\u212b<|im_end|>z"),
        ("gemma3", "x <eos> \u2581\u2581 y"),
        ("llama2-chat", "x </s> \u2581\u2581 y"),
    ],
)
def test_control_tokens_as_text_among_odd_characters(
    family: str, content: str, tmp_path: Path
) -> None:
    tokenizer = parts.folder(family)
    data = chats(tmp_path / "a.jsonl", (content, "No."))
    (row,) = written(encode(data, tmp_path / "o", tokenizer, content_specials="text"))
    (other,) = written(encode(data, tmp_path / "k", tokenizer, content_specials="keep"))
    assert len(row["input_ids"]) > len(other["input_ids"])
    assert learned(row, tokenizer) == learned(other, tokenizer)


PLACES = [
    "a.jsonl.gz:2",
    "a.jsonl.gz:3",
    "b.json:1",
    "c.jsonl:1",
    "c.jsonl:2",
    "d.jsonl:2",
    "d.jsonl:3",
]


def test_what_is_broken_is_skipped_in_every_kind_of_file(tmp_path: Path) -> None:
    good = json.dumps({"messages": alternating_chat("q", "a")})
    (tmp_path / "a.jsonl.gz").write_bytes(
        gzip.compress(f'{good}\n{{"messages": \n5\n{good}\n'.encode())
    )
    (tmp_path / "b.json").write_text(f"[{good}, 5, {good}]")
    (tmp_path / "c.jsonl").write_text(f'5\n{{"zzz": 1}}\n{good}\n')
    deep = good.replace('"q"', '"q", "x": ' + "[" * 900 + "]" * 900)
    (tmp_path / "d.jsonl").write_text(
        f"{good}\n{deep}\n{good.replace('}]', f', {chr(34)}weight{chr(34)}: 1e400}}]')}\n"
    )
    names = [str(path) for path in sorted(tmp_path.iterdir())]
    encoded = encode(names, tmp_path / "o", on_error="skip")
    counts = encoded.counts
    assert counts["rows"] == counts["encoded"] + counts["rejected"]
    rejected = [
        json.loads(line) for line in (tmp_path / "o" / "rejected.jsonl").read_text().splitlines()
    ]
    assert [f"{Path(r['file']).name}:{r['line']}" for r in rejected] == PLACES
    assert encode(names, tmp_path / "o", on_error="skip").reused


def test_a_row_that_lost_something_on_the_way_is_an_error(tmp_path: Path) -> None:
    data = tmp_path / "a.jsonl"
    for messages, what in (
        (
            [*alternating_chat("q"), "an answer lost", *alternating_chat("x", "a")[1:]],
            "expected a message",
        ),
        ([*alternating_chat("q"), {"role": "assistant", "content": None}], "has no content"),
    ):
        data.write_text(json.dumps({"messages": messages}) + "\n")
        with pytest.raises(DataError, match=what):
            encode(data, tmp_path / "o")


def test_a_folder_with_odd_characters_in_its_name(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    data = chats(tmp_path / "a.jsonl", ("q", "a"))
    encoded = encode(data, tmp_path / "o ü[1] x*")
    assert encoded.dataset().to_list() == written(encoded)
