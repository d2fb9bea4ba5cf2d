"""Labels that a loop takes out of a batch: what the data set or the collate function puts there."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

ROWS = """
import torch
from torch.utils.data import Dataset


class Blocks(Dataset):
    def __init__(self, ids):
        self.ids = ids

    def __getitem__(self, i):
        piece = self.ids[i * 8 : i * 8 + 9]
        {made}


{collate}
"""
LOOP = """
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

from rows import *

model = AutoModelForCausalLM.from_pretrained("base")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for batch in DataLoader(Blocks(list(range(100))), batch_size=2):
    {taken}
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
PAIR = "x, y = batch\n    loss = model(input_ids=x, labels=y).loss"
KEYS = 'loss = model(input_ids=batch["x"], labels=batch["y"].cuda()).loss'
STACKED = """
def collate(rows):
    return {"x": torch.stack([r["a"] for r in rows]), "y": torch.stack([r["b"] for r in rows])}
"""


@pytest.mark.parametrize(
    ("made", "collate", "taken", "faults"),
    [
        ("return piece[:-1], piece[1:]", "", PAIR, 1),
        ('return {"x": piece[:-1], "y": piece[1:].clone()}', "", KEYS, 1),
        ("return self.ids[i : i + 8], self.ids[i + 1 : i + 9]", "", PAIR, 1),
        ('return {"a": piece[:-1], "b": piece[1:]}', STACKED, KEYS, 1),
        (
            "return piece",
            'def collate(rows):\n    return {"x": rows[:, :-1], "y": rows[:, 1:]}',
            KEYS,
            1,
        ),
        (
            "return piece[:-1], piece[1:]",
            "",
            PAIR.replace("x, y = batch", "x, y = (t.cuda() for t in batch)"),
            1,
        ),
        ("return piece, piece.clone()", "", PAIR, 0),
        ("return piece[1:], piece[1:].clone()", "", PAIR, 0),
        ('return {"a": piece, "b": piece}', STACKED, KEYS, 0),
        ("return self.ids[i : i + 8], self.ids[i : i + 8]", "", PAIR, 0),
        (
            "return piece[:-1], piece[1:]",
            "",
            "x, y = batch\n    loss = torch.nn.functional.cross_entropy(model(x).logits[0], y[0])",
            0,
        ),
    ],
)
def test_labels_that_the_rows_shift(
    tmp_path: Path, made: str, collate: str, taken: str, faults: int
) -> None:
    (tmp_path / "rows.py").write_text(ROWS.format(made=made, collate=collate), encoding="utf-8")
    (tmp_path / "train.py").write_text(LOOP.format(taken=taken), encoding="utf-8")
    found = lint([tmp_path], select=["SRC051"]).findings
    assert len(found) == faults
