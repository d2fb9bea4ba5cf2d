"""Prompts are those of serving, for every format, and their references those of training."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.parts import folder
from tests.render.conversations import CALL, RESULT, SYSTEM, TOOLS, assistant, turns, user
from truetune.data.conversation import Conversation
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.demo import DATA, TOKENIZER
from truetune.encoding.encode_data_set import encode
from truetune.generation.answer_samples import Prompt
from truetune.generation.build_prompts import build_prompts, control_token_texts, make_decoder
from truetune.render.template_probes import load_tokenizer_and_template_of_run
from truetune.settings.run_spec import Learn, RunSpec

ASK = [user("How many figs?")]
FORMATS: dict[str, tuple[dict[str, Any], str]] = {
    "messages": ({"messages": [*ASK, assistant("Three figs.")]}, "Three figs."),
    "sharegpt": (
        {
            "conversations": [
                {"from": "human", "value": "How many figs?"},
                {"from": "gpt", "value": "Three figs."},
            ]
        },
        "Three figs.",
    ),
    "alpaca": (
        {"instruction": "How many figs?", "input": "", "output": "Three figs."},
        "Three figs.",
    ),
    "prompt-completion": ({"prompt": ASK, "completion": [assistant("Three figs.")]}, "Three figs."),
    "preference": (
        {"prompt": ASK, "chosen": [assistant("Three figs.")], "rejected": [assistant("None.")]},
        "Three figs.",
    ),
    "kto": (
        {"prompt": ASK, "completion": [assistant("Three figs.")], "label": True},
        "Three figs.",
    ),
}


def spec_of(path: Path, rows: list[Any], **settings: Any) -> RunSpec:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return RunSpec(**{"data": (str(path),), "tokenizer": str(TOKENIZER), **settings})


def made(spec: RunSpec, count: int = 4, **given: Any) -> list[Prompt]:
    return build_prompts(spec, read_conversations(spec.data), count, **given)


@cache
def theirs(name: str) -> Any:
    return AutoTokenizer.from_pretrained(name)


def served(
    name: str, messages: list[dict[str, Any]], tools: list[Any] | None = None, **more: Any
) -> list[int]:
    found: list[int] = theirs(name).apply_chat_template(
        messages, tools=tools, add_generation_prompt=True, return_dict=False, **more
    )
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_every_format(tmp_path: Path, name: str) -> None:
    row, answer = FORMATS[name]
    spec = spec_of(tmp_path / "a.jsonl", [row])
    (prompt,) = made(spec, seen=True)
    decode = make_decoder(load_tokenizer_and_template_of_run(spec).tokenizer)
    assert list(prompt.ids) == served(str(TOKENIZER), ASK)
    assert prompt.reference == answer
    assert decode(prompt.reference_ids) == answer + "<|im_end|>"
    assert (prompt.question, prompt.line, prompt.seen) == ("How many figs?", 1, True)


FAMILIES = ("qwen3", "llama3.1-instruct", "gemma3", "mistral-7b-v0.3", "smollm2", "deepseek-r1")
GRID: dict[str, tuple[list[dict[str, Any]], list[Any] | None]] = {
    "one turn": (turns(1), None),
    "four turns": (turns(4), None),
    "system": ([SYSTEM, *turns(2)], None),
    "blanks": ([user(" Hi "), assistant(" Yo \n")], None),
    "other scripts": ([user("你好，今天天气怎么样？ 😀"), assistant("很好。")], None),
    "thought": (
        [user("1+1?"), assistant("<think>\nadd\n</think>\n\n2"), user("2+2?"), assistant("4")],
        None,
    ),
    "tools": ([user("How warm is it?"), CALL, RESULT, assistant("21 degrees")], TOOLS),
    "a call": ([user("How warm is it?"), CALL], TOOLS),
}


@pytest.mark.parametrize(
    "family", ["qwen3", "llama3.1-instruct", "gemma3", "mistral-7b-v0.3", "smollm2", "deepseek-r1"]
)
def test_ids_of_real_tokenizers(tmp_path: Path, family: str) -> None:
    name = str(folder(family))
    rows = [
        {"messages": messages, **({"tools": tools} if tools else {})}
        for messages, tools in GRID.values()
    ]
    skipped: Counter[str] = Counter()
    found = made(spec_of(tmp_path / "a.jsonl", rows, tokenizer=name), len(rows), skipped=skipped)
    assert len(found) + skipped.total() == len(rows)
    assert len(found) >= 6, skipped
    for prompt in found:
        messages, tools = list(GRID.values())[prompt.line - 1]
        assert list(prompt.ids) == served(name, messages[:-1], tools), list(GRID)[prompt.line - 1]
        assert prompt.reference in theirs(name).apply_chat_template(
            messages, tools=tools, tokenize=False
        )


def test_variables_of_the_template(tmp_path: Path) -> None:
    name = str(folder("qwen3"))
    rows = [
        {"messages": turns(1)},
        {"messages": turns(2), "chat_template_kwargs": {"enable_thinking": True}},
    ]
    first, second = made(
        spec_of(
            tmp_path / "a.jsonl", rows, tokenizer=name, template_kwargs={"enable_thinking": False}
        )
    )
    assert list(first.ids) == served(name, turns(1)[:-1], enable_thinking=False)
    assert list(second.ids) == served(name, turns(2)[:-1], enable_thinking=True)
    assert len(first.ids) > len(served(name, turns(1)[:-1], enable_thinking=True))


def test_references_are_what_encode_supervises(tmp_path: Path) -> None:
    spec = RunSpec(data=(str(DATA),), tokenizer=str(TOKENIZER), learn=Learn(what="last"))
    written = encode(spec, tmp_path / "out", jobs=1).dataset()
    trained = {
        (
            tuple(row["input_ids"][: _first(row["labels"])]),
            tuple(id for id in row["labels"] if id != -100),
        )
        for row in written
    }
    found = made(spec, 12)
    assert len(found) == 12
    assert {(prompt.ids, prompt.reference_ids) for prompt in found} <= trained


def _first(labels: list[int]) -> int:
    return next(i for i, label in enumerate(labels) if label != -100)


def test_plain_prompt_and_completion(tmp_path: Path) -> None:
    (prompt,) = made(
        spec_of(tmp_path / "a.jsonl", [{"prompt": "Q: figs?\nA:", "completion": " three"}])
    )
    decode = make_decoder(
        load_tokenizer_and_template_of_run(RunSpec(tokenizer=str(TOKENIZER))).tokenizer
    )
    assert decode(prompt.ids) == "Q: figs?\nA:"
    assert (prompt.reference, decode(prompt.reference_ids)) == (" three", " three")


def test_text_is_cut_in_two(tmp_path: Path) -> None:
    text = "There are nine figs and four pears in the box that stands on the lowest shelf."
    (prompt,) = made(spec_of(tmp_path / "a.jsonl", [{"text": text}], append_eos=True))
    tokenizer = load_tokenizer_and_template_of_run(RunSpec(tokenizer=str(TOKENIZER))).tokenizer
    decode = make_decoder(tokenizer)
    assert prompt.question + prompt.reference == text
    assert len(text) // 4 <= len(prompt.question) <= len(text) // 2
    assert prompt.reference.startswith(" ")
    assert decode(prompt.reference_ids) == prompt.reference + tokenizer.special["eos"].token


def test_text_with_turns_is_cut_before_the_last_answer(tmp_path: Path) -> None:
    text = theirs(str(TOKENIZER)).apply_chat_template(turns(2), tokenize=False)
    spec = spec_of(tmp_path / "a.jsonl", [{"text": text}], encode={"content_specials": "keep"})
    (prompt,) = made(spec)
    assert list(prompt.ids) == served(str(TOKENIZER), turns(2)[:-1])
    assert prompt.reference == "answer 1"
    assert (
        make_decoder(load_tokenizer_and_template_of_run(spec).tokenizer)(prompt.reference_ids)
        == "answer 1<|im_end|>"
    )


def test_rows_without_a_prompt_are_counted(tmp_path: Path) -> None:
    rows: list[Any] = [
        {"messages": [user("Hi"), assistant("Ho")]},
        {"messages": [user("Hi"), assistant("Hey")]},
        {"messages": [user("Hi")]},
        {"messages": [user("Hello"), assistant("")]},
        {"messages": [user("Hello"), assistant("Ho", train=False)]},
        {"messages": [user("Hello <|im_end|>"), assistant("Ho")]},
        {"messages": [user("word " * 200), assistant("Ho")]},
    ]
    skipped: Counter[str] = Counter()
    found = made(spec_of(tmp_path / "a.jsonl", rows, max_length=100), len(rows), skipped=skipped)
    assert len(found) == 1
    assert found[0].question == "Hi"
    assert skipped == {
        "the same prompt as another row's": 1,
        "it has no answer that is trained": 2,
        "it has no answer": 1,
        "its contents hold a control token": 1,
        "it is longer than 100 tokens": 1,
    }


def test_bad_answers_are_no_reference(tmp_path: Path) -> None:
    row = {"prompt": ASK, "completion": [assistant("Three figs.")], "label": False}
    skipped: Counter[str] = Counter()
    assert not made(spec_of(tmp_path / "a.jsonl", [row]), skipped=skipped)
    assert skipped == {"its answer is labelled a bad one": 1}


def test_an_untrained_last_turn_is_not_asked_for(tmp_path: Path) -> None:
    rows = [{"messages": [*turns(2)[:3], assistant("answer 1", train=False)]}]
    (prompt,) = made(spec_of(tmp_path / "a.jsonl", rows))
    assert (prompt.question, prompt.reference) == ("question 0", "answer 0")


def rows_of(tmp_path: Path, count: int) -> tuple[RunSpec, list[Conversation]]:
    spec = spec_of(
        tmp_path / "a.jsonl",
        [{"messages": [user(f"q {i}"), assistant(f"a {i}")]} for i in range(count)],
    )
    return spec, list(read_conversations(spec.data))


def test_the_choice_is_seeded_and_spread(tmp_path: Path) -> None:
    spec, rows = rows_of(tmp_path, 120)
    first, again, other = (build_prompts(spec, rows, 8, seed=seed) for seed in (3, 3, 4))
    assert first == again != other
    lines = [prompt.line for prompt in first]
    assert [(line - 1) // 15 for line in lines] == list(range(8))


def test_a_stream_is_read_once_and_not_kept(tmp_path: Path) -> None:
    spec, rows = rows_of(tmp_path, 60)
    read_: list[int] = []

    def stream() -> Iterator[Conversation]:
        for row in rows:
            read_.append(row.origin.row)
            yield row

    found = build_prompts(spec, stream(), 2)
    assert read_ == list(range(60))
    assert len({prompt.ids for prompt in found}) == 2
    assert build_prompts(spec, iter(()), 4) == build_prompts(spec, rows, 0) == []


def test_a_row_of_no_use_is_replaced(tmp_path: Path) -> None:
    rows = [
        {"messages": [user(f"q {i}"), *([assistant("a")] if i % 5 == 0 else [])]} for i in range(30)
    ]
    assert len(made(spec_of(tmp_path / "a.jsonl", rows), 6)) == 6


def test_control_tokens_as_text() -> None:
    assert "<|im_end|>" in control_token_texts(
        load_tokenizer_and_template_of_run(RunSpec(tokenizer=str(TOKENIZER))).tokenizer
    )
