"""Texts of several turns with one end token at the end, in many forms, and what only looks so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import truetune

RULE = "inner-turns-not-terminated"


def _count(folder: Path, text: Callable[[int], str], rows: int = 12) -> int:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(json.dumps({"text": text(i)}) for i in range(rows)))
    return sum(finding.rule == RULE for finding in truetune.check(str(path)).findings)


def _talk(user: str, bot: str, between: str, last: str) -> Callable[[int], str]:
    return lambda i: (
        f"{user} Is room {i} free?\n{bot} It is, from {i}.{between}\n{user} And the next?\n{bot} No.{last}"
    )


@pytest.mark.parametrize(
    ("user", "bot", "end"),
    [
        ("User:", "Assistant:", "</s>"),
        ("### Human:", "### Assistant:", "<|endoftext|>"),
        ("**Customer:**", "**Agent:**", "<|end_of_text|>"),
        ("Kunde:", "Berater:", "<eos>"),
        ("用户：", "助手：", "<|im_end|>"),
    ],
)
def test_one_end_for_several_answers(user: str, bot: str, end: str, tmp_path: Path) -> None:
    assert _count(tmp_path, _talk(user, bot, "", end)) == 1


@pytest.mark.parametrize(
    "text",
    [
        _talk("User:", "Assistant:", "</s>", "</s>"),
        _talk("User:", "Assistant:", "", ""),
        _talk("Q:", "A:", "", "</s>"),
        lambda i: f"User: Is room {i} free?\nAssistant: It is.</s>",
        lambda i: f"Name: {i}\nDate: today\nName: other\nDate: never</s>",
        lambda i: (
            f"A story of {i}. User: is a word here, and Assistant: too. User: x Assistant: y</s>"
        ),
        lambda i: f"Question: {i}?\nHint: think\nAnswer: no\nQuestion: why?\nAnswer: so</s>",
    ],
)
def test_sound_texts_are_silent(text: Callable[[int], str], tmp_path: Path) -> None:
    assert _count(tmp_path, text) == 0
