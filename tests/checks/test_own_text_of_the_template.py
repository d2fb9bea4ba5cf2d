"""Contents that hold a sentence which the chat template writes into the same row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import truetune
from tests.checks.pages.data import DEMO
from tests.parts import folder

TURNS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ALWAYS = {
    "a date of today": (
        "<|im_start|>meta\nYour knowledge ends in June 2024. Today is {{ strftime_now('%d %B %Y') }}.<|im_end|>\n",
        "Your knowledge ends in June 2024. Today is 3 March 2025.",
    ),
    "a sentence in one line with others": (
        "A chat between a curious user and an assistant. ",
        "A chat between a curious user and an assistant. Be brief.",
    ),
    "Chinese": ("知识截止日期：2024年6月。\n", "知识截止日期：2023年12月。\n你是客服。"),
    "German": ("Antworte immer auf Deutsch.\n", "Du hilfst.\nAntworte  immer auf Deutsch."),
}
DEFAULT = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\n"
    "You are a helpful shop assistant.<|im_end|>\n{% endif %}"
)


def _codes(to: Path, system: str, **given: Any) -> list[str]:
    rows = [
        {
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": f"What is in row {number}?"},
                {"role": "assistant", "content": f"Row {number} holds words."},
            ],
            **given.get("columns", {}),
        }
        for number in range(6)
    ]
    path = to / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if "own" in given:
        template = to / "template.jinja"
        template.write_text(given["own"] + TURNS, encoding="utf-8")
        found = truetune.check(path, tokenizer=str(DEMO), template=str(template)).findings
    else:
        found = truetune.check(path, tokenizer=str(folder(given["tokenizer"]))).findings
    return [one.code for one in found]


@pytest.mark.parametrize("name", ALWAYS)
def test_sentences_that_the_template_adds_to_each_chat(name: str, tmp_path: Path) -> None:
    own, system = ALWAYS[name]
    assert "ROW026" in _codes(tmp_path, system, own=own)
    assert "ROW026" not in _codes(tmp_path, "Be brief, and kind.", own=own)


def test_a_default_that_the_rows_write_out(tmp_path: Path) -> None:
    assert "ROW026" not in _codes(tmp_path, "You are a helpful shop assistant.", own=DEFAULT)


def test_headers_are_no_sentences(tmp_path: Path) -> None:
    own = "Instructions (system):\n"
    assert "ROW026" not in _codes(tmp_path, "Instructions (system):\nBe brief.", own=own)


def test_a_description_of_tools(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    system = "Be brief.\nYou may call one or more functions to assist with the user query.\nlook()"
    given = {"tokenizer": "qwen2.5-instruct"}
    assert "ROW026" in _codes(tmp_path, system, columns={"tools": [tool]}, **given)
    assert "ROW026" not in _codes(tmp_path, system, **given)
