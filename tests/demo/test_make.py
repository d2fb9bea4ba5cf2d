from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from truetune.demo import BROKEN, DATA, TOKENIZER
from truetune.demo.make_demo_data import END, END_OF_TEXT, PAD, SPECIAL, make_demo_data

BACKEND = tokenizers.Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))


def settings(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((TOKENIZER / name).read_text("utf-8"))
    return loaded


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_making_it_again_gives_the_same_bytes(tmp_path: Path) -> None:
    make_demo_data(tmp_path)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    shipped = [path for folder in (DATA.parent, TOKENIZER) for path in folder.iterdir()]
    by_hand = [TOKENIZER / "chat_template.jinja"]
    assert made == sorted(
        path.relative_to(TOKENIZER.parent) for path in shipped if path not in by_hand
    )
    for path in made:
        assert (tmp_path / path).read_bytes() == (TOKENIZER.parent / path).read_bytes(), path


def test_the_package_holds_the_files() -> None:
    package = resources.files("truetune.demo")
    for name in (
        "support.yaml",
        "prose.txt",
        "data/support-chat.jsonl",
        "tokenizer/chat_template.jinja",
    ):
        assert package.joinpath(name).is_file(), name


def test_the_tokenizer_is_small() -> None:
    assert (TOKENIZER / "tokenizer.json").stat().st_size < 150_000
    assert 1_500 <= BACKEND.get_vocab_size() <= 2_500


def test_special_tokens_have_the_same_ids_in_every_file() -> None:
    assert [BACKEND.token_to_id(token) for token in SPECIAL] == [0, 1, 2, 3]
    assert (
        settings("tokenizer_config.json")["eos_token"]
        == settings("special_tokens_map.json")["eos_token"]
        == END
    )
    assert (
        settings("tokenizer_config.json")["pad_token"]
        == settings("special_tokens_map.json")["pad_token"]
        == PAD
    )
    stops = [BACKEND.token_to_id(token) for token in (END, END_OF_TEXT)]
    assert settings("generation_config.json") == {
        "eos_token_id": stops,
        "pad_token_id": BACKEND.token_to_id(PAD),
    }
    embedding = settings("config.json")["vocab_size"]
    assert embedding % 64 == 0
    assert 0 <= embedding - BACKEND.get_vocab_size() < 64


@given(st.text())
def test_every_text_comes_back(text: str) -> None:
    assert BACKEND.decode(BACKEND.encode(text).ids, skip_special_tokens=False) == text


def test_no_two_chats_ask_the_same() -> None:
    questions = [
        next(m["content"] for m in row["messages"] if m["role"] == "user") for row in rows(DATA)
    ]
    assert len(set(questions)) == len(questions) == 200


def test_transformers_sees_the_same_tokenizer_and_template() -> None:
    transformers = pytest.importorskip("transformers")
    from truetune.checks.check_data import view_row_tokens
    from truetune.settings.run_spec import RunSpec

    theirs = transformers.AutoTokenizer.from_pretrained(TOKENIZER)
    assert (theirs.eos_token, theirs.pad_token, theirs.bos_token, theirs.unk_token) == (
        END,
        PAD,
        None,
        None,
    )
    assert (theirs.padding_side, theirs.model_max_length, len(theirs)) == (
        "right",
        512,
        BACKEND.get_vocab_size(),
    )
    for path in (DATA, BROKEN):
        spec = RunSpec(data=(str(path),), tokenizer=str(TOKENIZER))
        for number, row in enumerate(rows(path)[:40]):
            ids = theirs.apply_chat_template(
                row["messages"], tools=row.get("tools"), return_dict=True
            )["input_ids"]
            assert view_row_tokens(spec, number)[0].ids.tolist() == ids


def test_the_template_writes_all_that_a_chat_can_hold() -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(TOKENIZER)
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    chat = [
        {"role": "system", "content": "Be kind."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "One "}, {"type": "text", "text": "plus?"}],
        },
        {
            "role": "assistant",
            "content": "Wait.",
            "reasoning_content": "A sum.",
            "tool_calls": [call, call],
        },
        {"role": "tool", "content": "2"},
    ]
    assert (
        theirs.apply_chat_template(
            chat, tools=[{"name": "add"}], tokenize=False, add_generation_prompt=True
        )
        == '<|im_start|>system\nBe kind.\n\n# Tools\n[{"name": "add"}]<|im_end|>\n'
        "<|im_start|>user\nOne plus?<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nA sum.\n</think>\n\nWait.\n"
        '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>\n'
        '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call><|im_end|>\n'
        "<|im_start|>tool\n2<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
