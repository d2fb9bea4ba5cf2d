"""Masks of labels that are turned round, and those that are right."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
from datasets import load_dataset
from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained("model")
IGNORE_INDEX = -100
"""
PARTS = """
def encode(row):
    p = tok(row["question"])["input_ids"]
    a = tok(row["answer"])["input_ids"] + [tok.eos_token_id]
    {}
rows = load_dataset("json", data_files="rows.jsonl", split="train").map(encode)
"""
NAMED = """
def encode(row):
    prompt_ids = tok.encode(row["x"])
    response_ids = tok.encode(row["y"])
    {}
"""
TURNED = {
    "sum": PARTS.format("return {'input_ids': p + a, 'labels': p + [-100] * len(a)}"),
    "word in the prompt": PARTS.replace('row["question"]', "f\"Q: {row['question']}\\nAnswer:\"")
    .replace("{row", "{{row")
    .replace("']}", "']}}")
    .format("return {'input_ids': p + a, 'labels': p + [-100] * len(a)}"),
    "cut": PARTS.format(
        "labels = (p + [-100] * len(a))[:512]\n    return {'input_ids': (p + a)[:512], 'labels': labels}"
    ),
    "constant": NAMED.format(
        "return dict(input_ids=prompt_ids + response_ids, labels=prompt_ids + [IGNORE_INDEX] * len(response_ids))"
    ),
    "other way": NAMED.format(
        "row['labels'] = prompt_ids + len(response_ids) * [-100]\n    return row"
    ),
    "slice": NAMED.format(
        "labels = prompt_ids + response_ids\n    labels[len(prompt_ids):] = [-100] * len(response_ids)\n"
        "    return {'labels': labels}"
    ),
    "tensor": "def collate(batch, prompt_len):\n    labels = batch['input_ids'].clone()\n"
    "    labels[:, prompt_len:] = -100\n    return {**batch, 'labels': labels}\n",
}
RIGHT = {
    "sum": PARTS.format("return {'input_ids': p + a, 'labels': [-100] * len(p) + a}"),
    "padded": PARTS.format("pad = [0] * 9\n    return {'labels': p + a + [-100] * len(pad)}"),
    "padded prompt": PARTS.format("rest = 512 - len(p)\n    return {'labels': p + [-100] * rest}"),
    "masked and padded": PARTS.format(
        "pads = [0] * 9\n    return {'labels': [-100] * len(p) + a + [-100] * len(pads)}"
    ),
    "slice": NAMED.format(
        "labels = prompt_ids + response_ids\n    labels[:len(prompt_ids)] = [-100] * len(prompt_ids)"
    ),
    "slice behind the row": NAMED.format(
        "labels = torch.zeros(512)\n    labels[len(prompt_ids) + len(response_ids):] = -100"
    ),
    "tool results": "def add(ids, labels, tool_ids):\n    labels = ids + [-100] * len(tool_ids)\n"
    "    return {'labels': labels}\n",
    "inputs": "def pad(input_ids, n):\n    labels = input_ids + [-100] * len(n)\n    return {'labels': labels}\n",
    "other value": NAMED.format(
        "mask = [0] * 9\n    mask[len(prompt_ids):] = [1]\n    return {'labels': response_ids}"
    ),
}


def count(text: str) -> int:
    rule = find_rule("prompts-labelled-in-place-of-answers")
    return len(run_rule(parse_module(HEAD + text, "train.py"), rule).findings)


@pytest.mark.parametrize("way", TURNED)
def test_a_turned_mask_is_told(way: str) -> None:
    assert count(TURNED[way]) == 1


@pytest.mark.parametrize("way", RIGHT)
def test_a_right_mask_is_fine(way: str) -> None:
    assert count(RIGHT[way]) == 0
