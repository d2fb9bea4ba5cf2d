"""Answers that a template renders as chats of their own: which openings come back, and which do not."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
from datasets import load_dataset
from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained("MODEL")
data = load_dataset("json", data_files="rows.jsonl", split="train")
def text_of(messages, **more):
    return tok.apply_chat_template(messages, tokenize=False, **more)
def answer(text):
    return [{"role": "assistant", "content": text}]
def ask(row):
    return [{"role": "user", "content": row["question"]}]
"""
QWEN = "Qwen/Qwen2.5-1.5B-Instruct"
PAIR = (
    "def shape(row):\n    return {'prompt': text_of(ask(row)), 'chosen': CHOSEN, 'rejected': REJECTED}\n"
    "data = data.map(shape)\n"
)
COMPLETION = (
    "def shape(row):\n    prompt = text_of(ask(row), add_generation_prompt=False)\n"
    "    return dict(prompt=prompt, completion=CHOSEN)\ndata = data.map(shape)\n"
)
STORED = (
    "def shape(row):\n    row['text_prompt'] = text_of(row['chosen'][:-1])\n"
    "    row['text_chosen'] = text_of(row['chosen'][-1:])\n"
    "    row['text_rejected'] = text_of(row['rejected'][-1:])\n    return row\ndata = data.map(shape)\n"
)
IDS = (
    "def shape(row):\n    prompt = tok.apply_chat_template(ask(row))\n"
    "    ids = prompt + tok.apply_chat_template(answer(row['good']))\n"
    "    return {'input_ids': ids, 'labels': [-100] * len(prompt) + ids[len(prompt):]}\ndata = data.map(shape)\n"
)
JOINED = (
    "def shape(row):\n    return {'text': text_of(ask(row)) + text_of(answer(row['good']))}\n"
    "data = data.map(shape)\n"
)
BATCHED = (
    "def shape(batch):\n    chosen = [text_of([{'role': 'assistant', 'content': one}]) for one in batch['good']]\n"
    "    return {'prompt': batch['question'], 'chosen': chosen, 'rejected': batch['bad']}\n"
    "data = data.map(shape, batched=True)\n"
)


def messages(code: str, model: str = QWEN) -> list[str]:
    module = parse_module(HEAD.replace("MODEL", model) + code, "shape.py")
    found = run_rule(module, find_rule("answer-rendered-as-own-chat")).findings
    return [finding.message for finding in found]


def pair(chosen: str, rejected: str) -> str:
    return PAIR.replace("CHOSEN", chosen).replace("REJECTED", rejected)


GOOD, BAD = "text_of(answer(row['good']))", "text_of(answer(row['bad']))"
FAULTY = {
    "pair": pair(GOOD, BAD),
    "an end is cut": pair(f"{GOOD}.removesuffix('<|im_end|>')", f"{BAD}.rstrip()"),
    "an EOS is added": pair(f"{GOOD} + tok.eos_token", f"{BAD} + tok.eos_token"),
    "completion": COMPLETION.replace("CHOSEN", GOOD),
    "the last turn of each side": STORED,
    "ids": IDS,
    "joined": JOINED,
    "batched": BATCHED,
}
SOUND = {
    "messages": pair("answer(row['good'])", "answer(row['bad'])"),
    "the prompt is cut off": pair(
        "text_of(ask(row) + answer(row['good']))[len(text_of(ask(row))):]",
        "text_of(ask(row) + answer(row['bad']))[len(text_of(ask(row))):]",
    ),
    "the opening is cut off": pair(
        f"{GOOD}.removeprefix(text_of([]))", f"{BAD}[len(text_of([])):]"
    ),
    "split at the header": pair(
        f"{GOOD}.split('assistant\\n')[1]", f"{BAD}.split('assistant\\n')[1]"
    ),
    "a template for turns": pair(
        GOOD.replace("))", "), chat_template=TURN)"), BAD.replace("))", "), chat_template=TURN)")
    ),
    "own template": "tok.chat_template = open('turns.jinja').read()\n" + pair(GOOD, BAD),
    "lengths": f"data = data.filter(lambda row: len({GOOD}) < 4000)\n",
    "whole chats": pair(
        "text_of(ask(row) + answer(row['good']))", "text_of(ask(row) + answer(row['bad']))"
    ),
}


@pytest.mark.parametrize("name", FAULTY)
def test_an_opening_before_the_answer_is_found(name: str) -> None:
    (message,) = messages(FAULTY[name])
    assert "default system prompt" in message


@pytest.mark.parametrize(
    ("model", "opening"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "BOS and its default system prompt"),
        ("unsloth/Meta-Llama-3-8B-Instruct", "BOS"),
        ("HuggingFaceTB/SmolLM2-1.7B-Instruct", "its default system prompt"),
    ],
)
def test_the_opening_is_that_of_the_model(model: str, opening: str) -> None:
    (message,) = messages(FAULTY["pair"], model)
    assert f"writes {opening} at" in message


@pytest.mark.parametrize("model", ["Qwen/Qwen3-8B", "microsoft/Phi-3.5-mini-instruct", "me/other"])
def test_templates_without_an_opening_are_left_alone(model: str) -> None:
    assert messages(FAULTY["pair"], model) == []


@pytest.mark.parametrize("name", SOUND)
def test_answers_without_an_opening_are_left_alone(name: str) -> None:
    assert messages(SOUND[name]) == []
