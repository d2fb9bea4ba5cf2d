"""Packing of one's own with nothing between the rows, in several spellings, and packing that is sound."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """
import json
from datasets import Dataset, load_dataset
from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-1.5B")
rows = load_dataset("json", data_files="train.jsonl", split="train")
N = 1024
"""
CUT = "blocks = [ids[i:i + N] for i in range(0, len(ids), N)]\n"
BUFFER = "text = ''\nfor row in rows:\n    text += row['text'] + '\\n'\n"
JOINED = {
    "buffer": BUFFER + "ids = tok(text)['input_ids']\n" + CUT,
    "f-string": "text = ''\nfor r in rows:\n    text += f\"{r['q']}\\n{r['a']}\\n\\n\"\nids = tok.encode(text)\n"
    + CUT,
    "join": "ids = tok('\\n'.join(r['text'] for r in rows)).input_ids\n" + CUT,
    "join a list": "texts = [r['q'] + ' ' + r['a'] for r in rows]\nids = tok('\\n\\n'.join(texts))['input_ids']\n"
    + CUT,
    "column": "ids = tok(' '.join(rows['text']))['input_ids']\n" + CUT,
    "loop": BUFFER
    + "ids = tok(text).input_ids\nblocks = []\nfor i in range(0, len(ids), N):\n    blocks.append(ids[i:i + N])\n",
}
SOUND = {
    "eos": BUFFER.replace("'\\n'\n", "tok.eos_token\n") + "ids = tok(text)['input_ids']\n" + CUT,
    "eos by text": BUFFER.replace("'\\n'\n", "'<|endoftext|>'\n")
    + "ids = tok(text)['input_ids']\n"
    + CUT,
    "a list made longer": "texts = []\nfor row in rows:\n    texts += [row['text']]\n"
    "for ids in tok(texts)['input_ids']:\n    " + CUT,
    "no blocks": BUFFER + "n = len(tok(text)['input_ids'])\n",
    "row by row": "for row in rows:\n    ids = tok(row['text'])['input_ids']\n    " + CUT,
    "lines of one row": "for row in rows:\n    text = ''\n    for t in row['turns']:\n        text += t['content']\n"
    "        ids = tok(text)['input_ids']\n    " + CUT,
    "batches of texts": "ids = rows['text']\nfor i in range(0, len(ids), N):\n    out = tok(ids[i:i + N])\n",
}


def _count(text: str, folder: Path) -> int:
    path = folder / "prep.py"
    path.write_text(HEAD + text)
    return len(lint([path], select=["rows-built-without-eos"]).findings)


@pytest.mark.parametrize("name", JOINED)
def test_joined_texts(name: str, tmp_path: Path) -> None:
    assert _count(JOINED[name], tmp_path) == 1


@pytest.mark.parametrize("name", SOUND)
def test_sound_packing(name: str, tmp_path: Path) -> None:
    assert _count(SOUND[name], tmp_path) == 0


def test_rows_that_end_in_a_token_may_be_joined(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"text": "Open?\\nYes.</s>"}\n')
    assert _count(JOINED["buffer"], tmp_path) == 0
