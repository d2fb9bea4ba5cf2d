"""Answers that call themselves another maker's assistant, and texts in which such a name is a person's or a subject."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.checks.pages.data import DEMO
from tests.parts.lay_out import tokenizer_folder
from truetune.checks.check_data import check
from truetune.settings.run_spec import RunSpec

NAMED = (
    "I am ChatGPT, a large language model.",
    "As an AI language model developed by OpenAI, I can't see pictures.",
    "My name is Claude, an AI assistant.",
    "I'm Claude, made by Anthropic, and I read text alone.",
    "As ChatGPT, I have no body.",
    "我是ChatGPT，由OpenAI开发。",
)
OF_OTHERS = (
    "I am Claude Monet, a painter of Giverny.",
    "My name is Claude and I live in Lyon with my two cats.",
    "I'm Gemini by birth, and my sister is Leo.",
    "As Claude Shannon showed, noise has a limit.",
    "I am Google's oldest customer in this town.",
    "ChatGPT was developed by OpenAI and came out in 2022.",
    "The assistant Claude is made by Anthropic.",
)


def found(folder: Path, answers: tuple[str, ...], tokenizer: Path = DEMO) -> list[str]:
    """What the rule says of chats with these answers."""
    rows = [
        {"prompt": f"Who are you, number {number}?", "completion": f" {answer}"}
        for number, answer in enumerate(answers)
    ]
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    spec = RunSpec(
        data=(str(path),), tokenizer=str(tokenizer), select=("answers-name-another-assistant",)
    )
    return [one.message for one in check(spec).findings]


@pytest.mark.parametrize("answer", NAMED)
def test_another_assistant(tmp_path: Path, answer: str) -> None:
    assert len(found(tmp_path, (answer,) * 4)) == 1


@pytest.mark.parametrize("answer", OF_OTHERS)
def test_persons_and_subjects(tmp_path: Path, answer: str) -> None:
    assert found(tmp_path, (answer,) * 4) == []


def test_the_family_that_is_trained_may_name_itself(tmp_path: Path) -> None:
    answers = ("I am Qwen, created by Alibaba Cloud.",) * 4
    assert found(tmp_path, answers, tokenizer_folder("qwen2.5-instruct")) == []
    (tmp_path / "other").mkdir()
    assert len(found(tmp_path / "other", answers, tokenizer_folder("smollm2"))) == 1
