"""Rows of the usual formats are recognised: what is asked, and what is the answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.auditing import tiny
from truetune.probe.read_prompt_and_answer_of_row import (
    generation_prompt_ids,
    parse_row,
    served_prompt_ids,
)

USER, ANSWER = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}
SYSTEM = {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize(
    ("row", "messages", "chat"),
    [
        ({"messages": [USER, ANSWER]}, [USER], True),
        ({"messages": [USER, ANSWER, USER, ANSWER, USER]}, [USER, ANSWER, USER], True),
        (
            {"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]},
            [USER],
            True,
        ),
        ({"prompt": [USER], "completion": [ANSWER]}, [USER], True),
        ({"prompt": "2+2?", "completion": "4"}, [USER], False),
        ({"instruction": "2+2?", "input": "", "output": "4"}, [USER], False),
        ({"question": "2+2?", "answer": "4", "hint": "even"}, [USER], False),
        ({"system": "Be brief.", "prompt": "2+2?", "response": "4"}, [SYSTEM, USER], False),
        ({"prompt": [USER], "chosen": [ANSWER], "rejected": [USER]}, [USER], True),
    ],
)
def test_recognised(row: dict[str, Any], messages: list[dict[str, str]], chat: bool) -> None:
    found = parse_row(row, 3)
    assert found is not None
    assert (found.messages, found.answer, found.chat, found.number) == (messages, "4", chat, 3)
    assert found.question == "2+2?"
    assert found.others == ({"hint": "even"} if "hint" in row else {})


@pytest.mark.parametrize(
    "row",
    [
        {"text": "a story"},
        {"input_ids": [1, 2]},
        {"messages": []},
        {"messages": [USER]},
        {"prompt": "2+2?"},
        {},
    ],
)
def test_not_recognised(row: dict[str, Any]) -> None:
    assert parse_row(row, 0) is None


def test_the_served_prompt_ends_as_the_template_says() -> None:
    tokenizer, row = tiny.tokenizer(), parse_row({"messages": [USER, ANSWER]}, 0)
    assert row is not None
    prompt, begins = served_prompt_ids(row, tokenizer), generation_prompt_ids(tokenizer)
    assert prompt is not None
    assert prompt[-len(begins) :] == begins
    assert tokenizer.decode(begins) == "<|im_start|>assistant\n"
    tokenizer.chat_template = None
    assert served_prompt_ids(row, tokenizer) is None
    assert generation_prompt_ids(tokenizer) == []
