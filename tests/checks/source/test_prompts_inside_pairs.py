"""Which pairs of a script hold their prompt twice, and which not."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
from datasets import load_dataset
from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-7B-Instruct")
data = load_dataset("json", data_files="pairs.jsonl", split="train")
def render(messages):
    return tok.apply_chat_template(messages, tokenize=False)
def turn(role, text):
    return {"role": role, "content": text}
def shape(row):
    user = [{"role": "user", "content": row["question"]}]
    text = tok.apply_chat_template(user, tokenize=False, add_generation_prompt=True)
    return {"prompt": PROMPT, "chosen": CHOSEN, "rejected": REJECTED}
pairs = data.map(shape)
"""
GOOD, BAD = 'turn("assistant", row["good"])', 'turn("assistant", row["bad"])'


def count_of(prompt: str, chosen: str, rejected: str) -> int:
    text = HEAD.replace("PROMPT", prompt).replace("CHOSEN", chosen).replace("REJECTED", rejected)
    rule = find_rule("pair-sides-hold-the-prompt")
    return len(run_rule(parse_module(text, "shape.py"), rule).findings)


@pytest.mark.parametrize(
    ("prompt", "chosen", "rejected"),
    [
        ('row["question"]', f"render(user + [{GOOD}])", f"render(user + [{BAD}])"),
        ("text", f"render(user + [{GOOD}])", f"render(user + [{BAD}]).strip()"),
        ("text", f"render([user[0], {GOOD}])", f"render([user[0], {BAD}])"),
        (
            'render(row["chosen"][:-1])',
            'render(row["chosen"])',
            'render(row["rejected"])',
        ),
        ('row["question"]', 'row["question"] + " " + row["good"]', 'row["question"] + row["bad"]'),
        ("text", 'text + row["good"]', 'text + row["bad"]'),
    ],
)
def test_the_prompt_stands_twice(prompt: str, chosen: str, rejected: str) -> None:
    assert count_of(prompt, chosen, rejected) == 1


@pytest.mark.parametrize(
    ("prompt", "chosen", "rejected"),
    [
        ("user", f"[{GOOD}]", f"[{BAD}]"),
        ("text", 'row["good"]', 'row["bad"]'),
        ("text", f"render(user + [{GOOD}])[len(text):]", f"render(user + [{BAD}])[len(text):]"),
        (
            "text",
            f'render(user + [{GOOD}]).replace(text, "")',
            f'render(user + [{BAD}]).replace(text, "")',
        ),
        (
            'render(row["chosen"][:-1])',
            'render(row["chosen"][-1:])',
            'render(row["rejected"][-1:])',
        ),
        ("text", f"render([{GOOD}])", f"render([{BAD}])"),
        (
            "f\"Describe {row['name']}.\"",
            'row["name"] + " is " + row["good"]',
            'row["name"] + row["bad"]',
        ),
    ],
)
def test_the_prompt_stands_once(prompt: str, chosen: str, rejected: str) -> None:
    assert count_of(prompt, chosen, rejected) == 0
