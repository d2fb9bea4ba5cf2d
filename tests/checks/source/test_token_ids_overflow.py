"""Token ids in types that are too small for the vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import read_module

HEAD = """
import numpy as np
import tiktoken
import torch
from transformers import AutoTokenizer
"""
QWEN = 'tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")\n'
IDS = "ids = []\nfor text in texts:\n    ids += tok(text)['input_ids']\n"
OVERFLOWS = {
    "astype": QWEN + IDS + "np.array(ids).astype(np.uint16).tofile('train.bin')",
    "a type by name": QWEN + IDS + "np.array(ids).astype('uint16').tofile('train.bin')",
    "array": QWEN + IDS + "np.array(ids, dtype=np.uint16).tofile('train.bin')",
    "in a function": QWEN
    + "def encode(text):\n    return {'ids': np.asarray(tok.encode(text), np.uint16)}\n",
    "memmap": QWEN
    + IDS
    + "out = np.memmap('train.bin', dtype=np.uint16, mode='w+', shape=(len(ids),))\nout[:] = ids",
    "torch": QWEN + IDS + "torch.save(torch.tensor(ids, dtype=torch.int16), 'train.pt')",
    "short": QWEN + IDS + "torch.save(torch.tensor(ids).short(), 'train.pt')",
    "tiktoken": "enc = tiktoken.get_encoding('cl100k_base')\n"
    "ids = enc.encode_ordinary(text)\nnp.array(ids, dtype=np.uint16).tofile('t.bin')",
    "signed, and half as many": 'tok = AutoTokenizer.from_pretrained("gpt2")\n'
    + IDS
    + "np.array(ids, dtype=np.int16).tofile('t.bin')",
}
FITS = {
    "a small vocabulary": 'tok = AutoTokenizer.from_pretrained("gpt2")\n'
    + IDS
    + "np.array(ids, dtype=np.uint16).tofile('train.bin')",
    "32,000 tokens": 'tok = AutoTokenizer.from_pretrained("mistralai/Mistral-7B-v0.1")\n'
    + IDS
    + "np.array(ids, dtype=np.int16).tofile('train.bin')",
    "a large type": QWEN + IDS + "np.array(ids, dtype=np.uint32).tofile('train.bin')",
    "lengths": QWEN + "np.array([len(text) for text in texts], dtype=np.uint16).tofile('l.bin')",
    "pixels": QWEN + IDS + "image = np.array(picture).astype(np.uint8)",
    "an unknown tokenizer": 'tok = AutoTokenizer.from_pretrained("acme/own")\n'
    + IDS
    + "np.array(ids, dtype=np.uint16).tofile('train.bin')",
    "two tokenizers": QWEN
    + 'small = AutoTokenizer.from_pretrained("gpt2")\n'
    + "ids = small(text)['input_ids']\nnp.array(ids, dtype=np.uint16).tofile('train.bin')",
}


def messages(code: str, folder: Path) -> list[str]:
    """What the rule says of a script."""
    script = folder / "prepare.py"
    script.write_text(HEAD + code, encoding="utf-8")
    findings = run_rule(read_module(script), find_rule("token-ids-overflow-their-type")).findings
    return [one.message for one in findings]


@pytest.mark.parametrize("code", OVERFLOWS.values(), ids=OVERFLOWS)
def test_ids_overflow(code: str, tmp_path: Path) -> None:
    assert len(messages(code, tmp_path)) == 1


@pytest.mark.parametrize("code", FITS.values(), ids=FITS)
def test_ids_fit(code: str, tmp_path: Path) -> None:
    assert messages(code, tmp_path) == []
