"""Texts that are cut into overlapping windows before they are divided at random, and other cuts."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """from pathlib import Path
from datasets import load_dataset
from langchain_text_splitters import RecursiveCharacterTextSplitter
from sklearn.model_selection import train_test_split
from torch.utils.data import Dataset, random_split
from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained("m")
text = Path("corpus.txt").read_text()
"""
WINDOWS = """class Windows(Dataset):
    def __init__(self, ids, length=512, stride=STRIDE):
        self.parts = [ids[i : i + length] for i in range(0, len(ids), stride)]
    def __len__(self):
        return len(self.parts)
    def __getitem__(self, i):
        return self.parts[i]
"""
SPLIT_WINDOWS = 'train, val = random_split(Windows(tok(text)["input_ids"]), [0.9, 0.1])\n'
MAPPED = """rows = load_dataset("text", data_files="corpus.txt", split="train")
def encode(batch):
    return tok(batch["text"], truncation=True, max_length=512, return_overflowing_tokens=True, stride=STRIDE)
parts = rows.map(encode, batched=True, remove_columns=["text"]).train_test_split(0.1, seed=1, shuffle=SHUFFLE)
"""
DOCUMENTS_FIRST = """rows = load_dataset("text", data_files="corpus.txt", split="train").train_test_split(0.1, seed=1)
def encode(batch):
    return tok(batch["text"], truncation=True, max_length=512, return_overflowing_tokens=True, stride=128)
train = rows["train"].map(encode, batched=True, remove_columns=["text"])
"""
LANGCHAIN = """splitter = RecursiveCharacterTextSplitter(chunk_size=1000, chunk_overlap=OVERLAP)
train, val = train_test_split(splitter.split_text(text), test_size=0.1)
"""


def count(text: str, folder: Path) -> int:
    (folder / "split.py").write_text(HEAD + text, encoding="utf-8")
    return len(lint([folder / "split.py"], select=["SRC348"], allow_unjudged=True).findings)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (WINDOWS.replace("STRIDE", "128") + SPLIT_WINDOWS, 1),
        (MAPPED.replace("STRIDE", "64").replace("SHUFFLE", "True"), 1),
        (LANGCHAIN.replace("OVERLAP", "200"), 1),
        (
            "parts = [text[i : i + 900] for i in range(0, len(text), 300)]\n"
            "train, val = train_test_split(parts, test_size=0.1)\n",
            1,
        ),
        (WINDOWS.replace("STRIDE", "512") + SPLIT_WINDOWS, 0),
        (MAPPED.replace("STRIDE", "0").replace("SHUFFLE", "True"), 0),
        (MAPPED.replace("STRIDE", "64").replace("SHUFFLE", "False"), 0),
        (LANGCHAIN.replace("OVERLAP", "0"), 0),
        (DOCUMENTS_FIRST, 0),
        (WINDOWS.replace("STRIDE", "128") + "train = Windows(text[:9000])\nval = Windows(text[9000:])\n", 0),
    ],
)  # fmt: skip
def test_windows_that_are_divided(text: str, found: int, tmp_path: Path) -> None:
    assert count(text, tmp_path) == found
