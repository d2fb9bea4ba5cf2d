"""Answers that end a thinking part which nothing began, and templates that begin it themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.parts.lay_out import tokenizer_folder
from truetune.checks.check_data import check
from truetune.settings.run_spec import RunSpec

OPEN_IN_PROMPT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
ENDED = "Two and {n} are looked at.\n</think>\nIt is {n}."
WHOLE = "<think>\nTwo and {n} are looked at.\n</think>\nIt is {n}."
REASONING_RULES = ("reasoning-is-never-opened", "thinking-stripped-from-history")


def found(folder: Path, rows: list[dict[str, Any]], **settings: Any) -> list[str]:
    """The messages of the two rules on reasoning, of these rows with Qwen2.5's tokenizer."""
    path = folder / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    spec = RunSpec(
        data=(str(path),), tokenizer=str(tokenizer_folder("qwen2.5-instruct")), **settings
    )
    return [one.message for one in check(spec).findings if one.rule in REASONING_RULES]


def chats(answer: str) -> list[dict[str, Any]]:
    """Eight chats with such an answer."""
    return [
        {
            "messages": [
                {"role": "user", "content": f"2 + {number}?"},
                {"role": "assistant", "content": answer.format(n=number)},
            ]
        }
        for number in range(8)
    ]


def pairs(prompt_end: str) -> list[dict[str, Any]]:
    """Eight plain prompts with such an end, and completions that end their reasoning."""
    return [
        {"prompt": f"2 + {number}?{prompt_end}", "completion": ENDED.format(n=number)}
        for number in range(8)
    ]


def test_the_end_alone_is_found(tmp_path: Path) -> None:
    (message,) = found(tmp_path, chats(ENDED))
    assert message.startswith("8 of 8 rows have an answer with </think> but no <think> before it")


def test_a_whole_part_is_not(tmp_path: Path) -> None:
    assert found(tmp_path, chats(WHOLE)) == []


def test_the_template_may_open_it(tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.write_text(OPEN_IN_PROMPT, encoding="utf-8")
    assert found(tmp_path, chats(ENDED), template=str(template)) == []


@pytest.mark.parametrize(("prompt_end", "count"), [("\n<think>\n", 0), ("\n", 1)])
def test_the_prompt_of_a_plain_row_may_open_it(tmp_path: Path, prompt_end: str, count: int) -> None:
    assert len(found(tmp_path, pairs(prompt_end))) == count


def test_one_answer_about_the_tags_is_not(tmp_path: Path) -> None:
    told = "Write </think> at its end."
    assert found(tmp_path, [*chats(WHOLE), *chats(told)[:1]]) == []
