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
for batch in DataLoader(Blocks(list(range(100))), batch_size=2{collator}):
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
            'def collate(rows):\n    ids = torch.stack(rows)\n    return {"x": ids[:, :-1], "y": ids[:, 1:]}',
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
    collator = ", collate_fn=collate" if collate else ""
    loop = LOOP.format(taken=taken, collator=collator)
    (tmp_path / "train.py").write_text(loop, encoding="utf-8")
    found = lint([tmp_path], select=["SRC051"]).findings
    assert len(found) == faults


TRAINER = """
import numpy as np
import torch
import torch.nn.functional as F
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer

tokenizer = AutoTokenizer.from_pretrained("base")
model = AutoModelForCausalLM.from_pretrained("base")
{code}
"""
MAPPED = """
def encode(rows):
    out = tokenizer(rows["text"])
    {made}
    return out


Trainer(model=model, train_dataset=load_dataset("json", data_files="a.jsonl").map(encode, batched=True)).train()
"""
CALLED = """
for ids in np.load("blocks.npy"):
    ids = torch.from_numpy(ids)
    {made}
    loss.backward()
"""


@pytest.mark.parametrize(
    ("code", "made", "faults"),
    [
        (MAPPED, 'out["labels"] = [x[1:] + [-100] for x in out["input_ids"]]', 1),
        (MAPPED, 'out["labels"] = [list(x) for x in out["input_ids"]]', 0),
        (MAPPED, 'out["labels"] = [x[1:] for x in tokenizer(rows["said"])["input_ids"]]', 0),
        (CALLED, "loss = model(ids, labels=F.pad(ids[:, 1:], (0, 1), value=-100)).loss", 1),
        (
            CALLED,
            "labels = torch.full_like(ids, -100)\n    labels[:, :-1] = ids[:, 1:]\n"
            "    loss = model(input_ids=ids, labels=labels).loss",
            1,
        ),
        (
            CALLED,
            "labels = ids.clone()\n    labels[:, :-1] = -100\n"
            "    loss = model(input_ids=ids, labels=labels).loss",
            0,
        ),
        (CALLED, "loss = model(input_ids=ids[:, 1:], labels=ids[:, 1:]).loss", 0),
        (
            CALLED,
            "logits = model(ids).logits\n    loss = model.loss_function(logits, ids[:, 1:], 9)",
            1,
        ),
        (
            CALLED,
            "logits = model(ids).logits\n"
            "    loss = model.loss_function(logits[:, :-1], None, 9, shift_labels=ids[:, 1:])",
            0,
        ),
        (
            CALLED,
            "logits = model(ids).logits[:, :-1]\n"
            "    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())",
            0,
        ),
    ],
)
def test_ways_to_shift_labels(tmp_path: Path, code: str, made: str, faults: int) -> None:
    text = TRAINER.format(code=code.format(made=made))
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    assert len(lint([tmp_path], select=["SRC051"]).findings) == faults


def test_a_collator_of_another_file_shifts(tmp_path: Path) -> None:
    collator = "import torch\n\n\nclass Pad:\n    def __call__(self, rows):\n        ids = torch.stack(rows)\n"
    shifted = '        return {"input_ids": ids, "labels": torch.roll(ids, shifts=-1, dims=1)}\n'
    (tmp_path / "pad.py").write_text(collator + shifted, encoding="utf-8")
    trained = "from pad import Pad\nTrainer(model=model, data_collator=Pad()).train()\n"
    script = tmp_path / "train.py"
    script.write_text(TRAINER.format(code=trained), encoding="utf-8")
    assert len(lint([tmp_path], select=["SRC051"]).findings) == 1
    own = (
        "from pad import Pad\n\n\nclass Own(Trainer):\n    def compute_loss(self, model, inputs):\n"
        '        logits = model(inputs["input_ids"]).logits\n'
        '        return F.cross_entropy(logits.flatten(0, 1), inputs["labels"].flatten())\n\n\n'
        "Own(model=model, data_collator=Pad()).train()\n"
    )
    script.write_text(TRAINER.format(code=own), encoding="utf-8")
    assert not lint([tmp_path], select=["SRC051"]).findings
