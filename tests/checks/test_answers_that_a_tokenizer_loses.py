"""Answers of rows that come back changed, though short texts do not."""

from __future__ import annotations

import json
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pytest

import truetune
from tests.parts import folder as folder_of_part

RULE = "tokenizer-loses-text"
CODE = "<|body|>    total = sum(row)\n    return total\n<|/body|>"


@pytest.mark.parametrize(("flag", "is_found"), [("lstrip", True), ("rstrip", True), ("", False)])
def test_added_tokens_that_strip_white_space(tmp_path: Path, flag: str, is_found: bool) -> None:
    tokenizer = _tokenizer_with_marks(tmp_path, flag)
    findings = _findings(tmp_path, tokenizer, [CODE] * 6)
    assert bool(findings) == is_found
    if is_found:
        assert "6 of 6 answers" in findings[0].message
        assert "<|body|>" in findings[0].evidence[0]


@pytest.mark.parametrize(
    ("part", "answer"),
    [
        # Qwen's normalizer writes accents as one character: the text looks the same.
        ("qwen2.5-instruct", unicodedata.normalize("NFD", "Crème brûlée, naïve")),
        ("smollm2", "def f(x):\n    return x\n"),
        ("llama3-instruct", "  two blanks, a tab\t and 今天"),
    ],
)
def test_published_tokenizers_lose_nothing(tmp_path: Path, part: str, answer: str) -> None:
    assert _findings(tmp_path, folder_of_part(part), [answer] * 6) == []


def test_the_tokens_of_a_task_are_no_marks_of_a_template(tmp_path: Path) -> None:
    tokenizer = _tokenizer_with_marks(tmp_path, "")
    assert _findings(tmp_path, tokenizer, [CODE] * 6, "template-inside-template") == []


def _tokenizer_with_marks(folder: Path, flag: str) -> Path:
    target = folder / "tokenizer"
    shutil.copytree(folder_of_part("smollm2"), target)
    path = target / "tokenizer.json"
    settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    plain = {
        "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False,
    }  # fmt: skip
    first = max(settings["model"]["vocab"].values()) + 1
    for number, content in enumerate(("<|body|>", "<|/body|>")):
        added = {**plain, "id": first + number, "content": content}
        settings["added_tokens"].append({**added, flag: True} if flag else added)
    path.write_text(json.dumps(settings), encoding="utf-8")
    return target


def _findings(folder: Path, tokenizer: Path, answers: list[str], rule: str = RULE) -> list[Any]:
    rows = [
        {"messages": [{"role": "user", "content": f"Question {number}?"}, {"role": "assistant", "content": answer}]}
        for number, answer in enumerate(answers)
    ]  # fmt: skip
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return list(truetune.check(path, tokenizer=str(tokenizer), select=(rule,)).findings)
