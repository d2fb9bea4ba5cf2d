"""Which rows of a training are padded to a fixed length that costs, and which are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.findings import Finding
from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import argparse, json
from dataclasses import dataclass
from datasets import load_dataset
from transformers import AutoTokenizer, AutoModelForCausalLM, DataCollatorForSeq2Seq, Trainer
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
data = load_dataset("json", data_files="rows.jsonl", split="train")
"""
TRAIN = "\nTrainer(model=model, train_dataset=rows).train()\n"
COSTLY = {
    "no length": 'rows = data.map(lambda b: tok(b["text"], padding="max_length", truncation=True))',
    "tokenizer's limit": """
rows = data.map(lambda b: tok(b["text"], padding="max_length", max_length=tok.model_max_length))
""",
    "old argument": 'rows = data.map(lambda b: tok(b["text"], pad_to_max_length=True))',
    "dataclass": """
@dataclass
class Settings:
    max_len: int = 131072
    padding: str = "max_length"
settings = Settings()
rows = data.map(lambda b: tok(b["text"], padding=settings.padding, truncation=True, max_length=settings.max_len))
""",
    "dictionary": """
ENCODE = dict(padding="max_length", truncation=True, max_length=8192)
class Rows:
    def __init__(self, data):
        self.data = data
    def __getitem__(self, i):
        return tok(self.data[i]["text"], **ENCODE)
rows = Rows(data)
""",
    "command line": """
parser = argparse.ArgumentParser()
parser.add_argument("--max_len", type=int, default=4096)
args = parser.parse_args()
def encode(batch, tok, n):
    return tok(batch["text"], padding="max_length", truncation=True, max_length=n)
rows = data.map(encode, fn_kwargs={"tok": tok, "n": args.max_len})
""",
    "set on the tokenizer": """
tok.model_max_length = 131072
rows = data.map(lambda b: tok(b["text"], padding="max_length", truncation=True))
""",
    "collator": 'rows = data\ncollator = DataCollatorForSeq2Seq(tok, padding="max_length", max_length=16384)',
    "by hand": """
MAX = 8192
def encode(row):
    ids = tok(row["text"])["input_ids"]
    return {"input_ids": ids + [tok.pad_token_id] * (MAX - len(ids))}
rows = data.map(encode)
""",
}
COSTLY["turns of a chat"] = """
class Chats:
    def __getitem__(self, i):
        ids = []
        for turn in self.rows[i]["messages"]:
            ids += tok(turn["content"])["input_ids"]
        return {"input_ids": ids + [0] * (8192 - len(ids))}
rows = Chats()
rows[0]
"""
CHEAP = {
    "longest": 'rows = data.map(lambda b: tok(b["text"], padding=True, truncation=True, max_length=8192))',
    "short": 'rows = data.map(lambda b: tok(b["text"], padding="max_length", max_length=512))',
    "small family": """
tok = AutoTokenizer.from_pretrained("bert-base-uncased")
rows = data.map(lambda b: tok(b["text"], padding="max_length", truncation=True))
""",
    "captions of images": """
from transformers import CLIPTokenizer
tok = CLIPTokenizer.from_pretrained(NAME)
rows = data.map(lambda b: tok(b["text"], padding="max_length", max_length=tok.model_max_length))
""",
    "part of a diffusion model": """
tok = AutoTokenizer.from_pretrained(NAME, subfolder="tokenizer")
rows = data.map(lambda b: tok(b["text"], padding="max_length", max_length=tok.model_max_length))
""",
    "limit set": """
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B", model_max_length=512)
rows = data.map(lambda b: tok(b["text"], padding="max_length", truncation=True))
""",
    "unknown length": 'rows = data.map(lambda b: tok(b["text"], padding="max_length", max_length=LIMIT))',
    "padding=False": 'rows = data.map(lambda b: tok(b["text"], padding=False, max_length=8192, truncation=True))',
    "by hand to the batch": """
def collate(rows):
    longest = max(len(row["input_ids"]) for row in rows)
    return [row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows]
rows = data
""",
    "what is left of a pack": """
class Packed:
    def __getitem__(self, i):
        ids, positions = [], []
        for row in self.bins[i]:
            ids += row
            positions += range(len(row))
        gap = 4096 - len(ids)
        return {"input_ids": ids + [0] * gap, "position_ids": positions + [0] * (4096 - len(positions))}
rows = Packed()
""",
}


def findings_of(text: str, folder: Path | None = None) -> list[Finding]:
    path = "train.py" if folder is None else str(folder / "train.py")
    rule = find_rule("rows-padded-to-a-fixed-length")
    return list(run_rule(parse_module(text, path), rule).findings)


@pytest.mark.parametrize("code", COSTLY.values(), ids=COSTLY)
def test_long_paddings_are_found(code: str) -> None:
    assert len(findings_of(HEAD + code + TRAIN)) == 1


@pytest.mark.parametrize("code", CHEAP.values(), ids=CHEAP)
def test_short_paddings_are_left_alone(code: str) -> None:
    assert findings_of(HEAD + code + TRAIN) == []


@pytest.mark.parametrize(("characters", "found"), [(60, 1), (1000, 0)])
def test_a_length_far_beyond_the_rows(characters: int, found: int, tmp_path: Path) -> None:
    rows = [json.dumps({"text": "a b " * (characters // 4)}) for _ in range(20)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    code = 'rows = data.map(lambda b: tok(b["text"], padding="max_length", max_length=1024))'
    findings = findings_of(HEAD + code + TRAIN, tmp_path)
    assert len(findings) == found
    assert all("98 % of all tokens are padding" in one.message for one in findings)


def test_prompts_of_a_generation_are_no_rows() -> None:
    code = 'rows = data\nbatch = tok(["a"], padding="max_length", max_length=4096)\nmodel.generate(**batch)'
    assert findings_of(HEAD + code + TRAIN) == []
