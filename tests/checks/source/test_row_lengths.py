"""To how many tokens a script cuts its rows, wherever the number stands."""

from __future__ import annotations

import pytest

from truetune.checks.source.evidence.length_that_rows_are_cut_or_padded_to import (
    longest_row_after_cut_or_pad,
)
from truetune.source.parsed_source_file import parse_module

HEAD = """
import argparse
from dataclasses import dataclass
from transformers import AutoTokenizer, AutoModelForCausalLM
tok = AutoTokenizer.from_pretrained("m")
model = AutoModelForCausalLM.from_pretrained("m")
"""
SCRIPTS = {
    "dataclass": (
        """
@dataclass
class Config:
    max_len: int = 2048
cfg = Config()
rows = data.map(lambda b: tok(b["text"], truncation=True, max_length=cfg.max_len))
""",
        2048,
    ),
    "dictionary": (
        """
CFG = {"data": {"max_len": 3000}}
rows = data.map(lambda b: tok(b["text"], truncation=True, max_length=CFG["data"]["max_len"]))
""",
        3000,
    ),
    "command line": (
        """
parser = argparse.ArgumentParser()
parser.add_argument("--cutoff", type=int, default=1536)
args = parser.parse_args()
class Rows:
    def __init__(self, n): self.n = n
    def __getitem__(self, i): return tok(texts[i], truncation=True, max_length=self.n)
rows = Rows(args.cutoff)
rows[0]
""",
        1536,
    ),
    "on the tokenizer": (
        'tok.model_max_length = 4096\nrows = data.map(lambda b: tok(b["text"], truncation=True))',
        4096,
    ),
    "slice": ('N = 700\nrows = [tok(text)["input_ids"][:N] for text in texts]', 700),
    "largest": (
        "a = tok(x, truncation=True, max_length=64)\nb = tok(y, truncation=True, max_length=512)",
        512,
    ),
    "prompts": ("b = tok(x, truncation=True, max_length=64)\nmodel.generate(**b)", None),
    "not cut": ('rows = data.map(lambda b: tok(b["text"], max_length=64))', None),
    "unknown": ('rows = data.map(lambda b: tok(b["text"], truncation=True, max_length=n))', None),
}


@pytest.mark.parametrize(("code", "length"), SCRIPTS.values(), ids=SCRIPTS)
def test_lengths_of_rows(code: str, length: int | None) -> None:
    assert longest_row_after_cut_or_pad(parse_module(HEAD + code, "train.py")) == length
