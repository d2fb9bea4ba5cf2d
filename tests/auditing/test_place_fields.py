"""Rows that no rendering of ours explains: their texts are found, whatever wrote them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.auditing.placing import placed, probes_of, record, text_of
from truetune.auditing.align_batch_tokens_with_sources import align_record
from truetune.auditing.audit import Field, Sample
from truetune.auditing.list_row_texts_with_sources import list_row_fields
from truetune.auditing.search_row_fields_in_text import SearchedText, find_field_spots
from truetune.demo import TOKENIZER
from truetune.render.rendering import Source
from truetune.render.template_probes import make_probes
from truetune.render.tokenizer import load_tokenizer
from truetune.settings.run_spec import RunSpec

DEMO = make_probes(load_tokenizer(str(TOKENIZER)), RunSpec())
STOP = "<|im_end|>"


def line(text: str, *rows: dict[str, Any], **settings: Any) -> Sample:
    """One line that spells a text, and the rows that were given."""
    ids = DEMO.tokenizer.backend.encode(text, add_special_tokens=False).ids
    found = record(TOKENIZER, 0, [{"input_ids": torch.tensor([ids])}], list(rows), **settings)
    (sample,) = align_record(found, DEMO, frozenset(stop.id for stop in DEMO.stops))
    return sample


def texts(sample: Sample) -> dict[str, str]:
    """What was found of each field."""
    return {
        field.path: text_of(sample, sample.field == i).strip()
        for i, field in enumerate(sample.fields)
    }


def expected(sample: Sample) -> str:
    assert sample.expected is not None
    return text_of(sample, sample.expected)


ALPACA = {
    "instruction": "Name the fruit in the box.",
    "input": "box 3",
    "output": "It holds figs.",
    "id": "row-17",
}


def test_a_format_of_its_own() -> None:
    sample = line(
        f"### Instruction:\n{ALPACA['instruction']}\n{ALPACA['input']}\n\n### Response:\n"
        f"{ALPACA['output']}{STOP}",
        ALPACA,
    )
    assert texts(sample) == {key: ALPACA[key] for key in ("instruction", "input", "output")}
    assert sample.placed_by == "fields"
    assert expected(sample) == f"It holds figs.{STOP}"
    assert {Source(int(s)) for s in sample.source} == {
        Source.TEMPLATE,
        Source.USER,
        Source.ASSISTANT,
        Source.STOP,
    }


def test_foreign_columns_stay_other_and_the_markers_tell_the_answer() -> None:
    row = {
        "frage": "Was liegt in der Kiste?",
        "antwort": "Feigen liegen darin.",
        "notiz": "nirgends gebraucht",
    }
    sample = line(
        f"<|im_start|>user\n{row['frage']}{STOP}\n<|im_start|>assistant\n{row['antwort']}{STOP}\n",
        row,
    )
    assert texts(sample) == {"frage": row["frage"], "antwort": row["antwort"]}
    assert all(field.source is Source.OTHER for field in sample.fields)
    assert expected(sample) == row["antwort"] + STOP
    bare = line(f"{row['frage']} {row['antwort']}", row)
    assert bare.expected is None


def test_prompt_and_completion_as_text() -> None:
    row = {"prompt": "Q: How many figs are there?\nA:", "completion": " Nine figs."}
    for end in ("", STOP):
        sample = line(row["prompt"] + row["completion"] + end, row)
        assert sample.placed_by == "rendering"
        assert expected(sample) == row["completion"] + end
    assert sample.source[-1] == Source.STOP


def test_text_with_markers_and_without() -> None:
    chat = f"<|im_start|>user\nHi there, you{STOP}\n<|im_start|>assistant\nHello back{STOP}\n"
    for rows in ((), ({"text": chat},)):
        sample = line(chat, *rows)
        assert expected(sample) == f"Hello back{STOP}"
    plain = "A lighthouse stands on the northern cliff."
    for rows in ((), ({"text": plain},)):
        sample = line(plain, *rows)
        assert sample.expected is None
        assert set(sample.source.tolist()) == {Source.TEXT}


def test_thinking_kept_dropped_and_apart() -> None:
    think, answer = "I look into the box first.", "There are nine figs."
    inline = {
        "messages": [
            {"role": "user", "content": "How many?"},
            {"role": "assistant", "content": f"<think>\n{think}\n</think>\n\n{answer}"},
        ]
    }
    apart = {
        "messages": [
            {"role": "user", "content": "How many?"},
            {"role": "assistant", "content": answer, "reasoning_content": think},
        ]
    }
    for row in (inline, apart):
        kept = line(f"Q: How many?\nA: <think>\n{think}\n</think>\n\n{answer}{STOP}", row)
        assert text_of(kept, kept.source == Source.ASSISTANT).strip() == answer
        assert think in text_of(kept, kept.source == Source.REASONING)
        assert expected(kept).endswith(f"{answer}{STOP}")
        dropped = line(f"Q: How many?\nA: {answer}{STOP}", row)
        assert expected(dropped).strip() == f"{answer}{STOP}"
        assert not (dropped.source == Source.REASONING).any()


@pytest.mark.parametrize("how", ["json", "ascii", "leaves"])
def test_tool_calls_as_templates_write_them(how: str) -> None:
    arguments = {"city": "Zürich", "note": 'a "quoted" <b>'}
    row = {"messages": [
        {"role": "user", "content": "What is the weather?"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "function": {"name": "get_weather", "arguments": arguments}}]},
        {"role": "tool", "content": '{"sky": "clear"}'},
        {"role": "assistant", "content": "It is clear."}]}  # fmt: skip
    written = {
        "json": json.dumps(arguments, ensure_ascii=False),
        "ascii": json.dumps(arguments),
        "leaves": "".join(f"<p>{key}={value}</p>" for key, value in arguments.items()),
    }[how]
    sample = line(
        f"user: What is the weather?\ncall: get_weather {written}{STOP}\n"
        f'tool: {{"sky": "clear"}}\nbot: It is clear.{STOP}\n',
        row,
    )
    calls = text_of(sample, sample.source == Source.TOOL_CALL)
    assert "get_weather" in calls
    assert "rich" in calls
    assert "quoted" in calls
    assert text_of(sample, sample.source == Source.TOOL_RESULT).strip() == '{"sky": "clear"}'
    assert (sample.source == Source.STOP).sum() == 2


def test_sharegpt_and_equal_texts() -> None:
    row = {
        "conversations": [
            {"from": "human", "value": "Yes"},
            {"from": "gpt", "value": "Yes"},
            {"from": "human", "value": "user"},
            {"from": "gpt", "value": "Yes"},
        ]
    }
    sample = line(f"[user]\nYes\n[bot]\nYes{STOP}\n[user]\nuser\n[bot]\nYes{STOP}\n", row)
    kinds = [sample.fields[i].path for i in sample.field.tolist() if i >= 0]
    assert kinds == [f"conversations[{i}].value" for i in range(4)]
    assert expected(sample) == f"Yes{STOP}Yes{STOP}"


def test_a_prompt_that_stands_in_another_row() -> None:
    short = {"question": "How many figs are in the box?", "answer": "Nine."}
    long = {
        "question": "I ask you: How many figs are in the box? Say it.",
        "answer": "There are ten of them.",
    }
    sample = line(f"{long['question']}\n{long['answer']}{STOP}", short, long)
    assert {field.row for field in sample.fields} == {1}
    twin = {"question": long["question"], "answer": "There are none at all."}
    sample = line(f"{twin['question']}\n{twin['answer']}{STOP}", short, long, twin)
    assert {field.row for field in sample.fields} == {2}


def test_rows_of_a_pack_that_nothing_parts() -> None:
    rows = [
        {"question": f"How many figs are in box number {i}?", "answer": "Nine" if i % 2 else "Ten"}
        for i in range(6)
    ]
    sample = line("".join(f"Q {row['question']} A {row['answer']}{STOP}\n" for row in rows), *rows)
    assert [field.row for field in sample.fields] == [i for i in range(6) for _ in range(2)]
    assert sample.documents.max() == 5
    assert expected(sample).replace(" ", "") == "".join(f"{row['answer']}{STOP}" for row in rows)


def test_sentencepiece_spells_a_space_before_the_text() -> None:
    row = {"question": "How many figs are there?", "answer": "Nine figs."}
    ids = (
        probes_of("mistral-7b-v0.3")
        .tokenizer.backend.encode(f"{row['question']} {row['answer']}")
        .ids
    )
    (sample,) = placed("mistral-7b-v0.3", [{"input_ids": torch.tensor([ids])}], [row])
    assert texts(sample) == row


def test_fields_know_their_columns() -> None:
    row = {
        "prompt": "P x",
        "chosen": "C x",
        "rejected": "R x",
        "score": 3,
        "origin": "web",
        "system": None,
    }
    assert [(f.path, f.source) for f in list_row_fields(row, 4)] == [
        ("prompt", Source.USER),
        ("chosen", Source.ASSISTANT),
        ("rejected", Source.ASSISTANT),
        ("origin", Source.OTHER),
    ]
    parts = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "tools": '[{"name": "f"}]',
    }
    assert [(f.path, f.source, f.text) for f in list_row_fields(parts, 0)] == [
        ("messages[0].content[0].text", Source.USER, "Hi"),
        ("tools[0]", Source.TOOLS, '{"name": "f"}'),
        ("tools[0].name", Source.TOOLS, "f"),
    ]


WORDS = st.text(st.sampled_from("ab é日👩 \n<>\"'\\"), min_size=1, max_size=30).filter(
    lambda text: text.strip()
)


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=6), st.sampled_from(["\n", "<|im_end|>", "</s>\n"]))
def test_every_field_is_found_in_its_order(words: list[str], between: str) -> None:
    fields = [Field(f"messages[{i}].content", Source.USER, word, 0) for i, word in enumerate(words)]
    text = "".join(f"{between}{word.strip()}" for word in words) + between
    raw, begins, places = text.encode(), range(len(text.encode())), []
    for spot in find_field_spots(
        fields, SearchedText(raw, list(begins)), 0, len(raw), str, cut=False
    ):
        places.append((spot.start, spot.field))
        assert raw[spot.start : spot.end].decode() == words[spot.field].strip()
    long = {
        i
        for i, word in enumerate(words)
        if len(word.strip()) > 8 and sum(word.strip() in w for w in words) == 1
    }
    assert long <= {field for _, field in places}
    assert [field for _, field in sorted(places)] == sorted(field for _, field in places)


@settings(max_examples=40, deadline=None)
@given(st.lists(WORDS, min_size=2, max_size=4), st.integers(1, 60))
def test_any_row_can_be_placed_on_any_tokens(words: list[str], cut: int) -> None:
    row = {
        "messages": [
            {"role": ("user", "assistant")[i % 2], "content": word} for i, word in enumerate(words)
        ]
    }
    text = "".join(f"<|im_start|>{m['role']}\n{m['content']}{STOP}\n" for m in row["messages"])
    ids = DEMO.tokenizer.backend.encode(text, add_special_tokens=False).ids[:cut]
    found = record(TOKENIZER, 0, [{"input_ids": torch.tensor([ids])}], [row])
    (sample,) = align_record(found, DEMO, frozenset(stop.id for stop in DEMO.stops))
    assert len(sample.source) == len(sample.field) == len(sample.documents) == len(ids)
    assert sample.placed_by == "rendering"


def test_rows_that_share_their_longest_text() -> None:
    rule = "You count the fruit in boxes, and say nothing else but the number."
    rows = [
        {
            "system": rule,
            "question": f"How many figs are in box number {i}?",
            "answer": f"Exactly {i}",
        }
        for i in range(4)
    ]
    written = "".join(
        f"{row['system']}\n{row['question']}\n{row['answer']}{STOP}\n" for row in rows
    )
    sample = line(written, *rows)
    assert [(field.row, field.path) for field in sorted(sample.fields, key=lambda f: f.row)] == [
        (i, path) for i in range(4) for path in sorted(rows[0], key=lambda p: -len(rows[0][p]))
    ]
    assert sample.documents.max() == 3
    assert expected(sample).replace(" ", "") == "".join(
        f"{row['answer']}{STOP}".replace(" ", "") for row in rows
    )


def test_tokens_more_than_the_rendering_are_not_expected() -> None:
    row = {
        "messages": [
            {"role": "user", "content": "Hi there"},
            {"role": "assistant", "content": "Hello back"},
        ]
    }
    chat = f"<|im_start|>user\nHi there{STOP}\n<|im_start|>assistant\nHello back{STOP}\n"
    sample = line(f"{chat}{STOP}", row)
    assert sample.placed_by == "rendering"
    assert expected(sample) == f"Hello back{STOP}"
    assert (sample.source == Source.STOP).sum() == 1
    assert sample.documents.max() == 0


def test_nothing_is_expected_of_pretraining() -> None:
    rows = [
        {"text": f"Box {i} stands on the northern cliff, and holds {i} figs."} for i in range(4)
    ]
    end = DEMO.tokenizer.special["eos"].token
    whole = "".join(row["text"] + end for row in rows)
    for text in (whole, whole[20:-20], f"{whole} A", end + whole):
        sample = line(text, *rows)
        assert sample.expected is None
        assert {Source(int(s)) for s in sample.source} <= {
            Source.TEXT,
            Source.STOP,
            Source.TEMPLATE,
        }


IDS = st.lists(st.sampled_from([0, 1, 2, 3, 40, 52, 300, 10**6]), min_size=6, max_size=6)
BITS = st.lists(st.integers(0, 2), min_size=6, max_size=6)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(IDS, min_size=2, max_size=2),
    st.lists(BITS, min_size=2, max_size=2),
    st.lists(st.lists(st.integers(0, 5), min_size=6, max_size=6), min_size=2, max_size=2),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from(["sft", "dpo", "kto"]),
)
def test_any_batch_can_be_placed(
    ids: list[list[int]],
    mask: list[list[int]],
    positions: list[list[int]],
    pad: int,
    flat: bool,
    kind: str,
) -> None:
    batch = {
        "input_ids": torch.tensor(ids),
        "labels": torch.tensor(ids),
        "attention_mask": torch.tensor(mask),
        "position_ids": torch.tensor(positions),
    }
    if flat:
        batch = {key: value[0] for key, value in batch.items()}
    prepared = [[{"input_ids": line[:4]} for line in ids]] if kind == "kto" else None
    found = record(
        TOKENIZER, pad, [batch], [{"text": "a b"}, {"x": ["y", None, 3]}], prepared, kind
    )
    made = list(align_record(found, DEMO, frozenset({2, 3})))
    assert len(made) == (1 if flat else 2)
    for sample in made:
        text = ~sample.padding
        assert ((sample.documents >= 0) == text).all()
        inside = sample.documents[text]
        assert sorted(set(inside.tolist())) == list(range(int(inside.max(initial=-1)) + 1))
        assert sorted(inside.tolist()) == inside.tolist()
        places = text.nonzero()[0]
        assert not len(places) or len(places) == places[-1] - places[0] + 1
        assert (sample.field < len(sample.fields)).all()
