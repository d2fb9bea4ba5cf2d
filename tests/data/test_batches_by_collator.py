"""Collators that are followed make the batches that they make where they run: compared with torch itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from truetune.data.script_rows.compute_tokenizer_calls_of_script import ScriptTokenizer
from truetune.data.script_rows.make_batches_by_collator import ScriptBatch, ScriptCollator
from truetune.data.script_rows.read_rows_given_to_trainer import read_token_rows
from truetune.errors import DataError

PAD = 0
LENGTHS = (3, 7, 2, 5, 4, 6, 8, 2, 9)
ROWS = [
    {
        "input_ids": [10 * n + place + 1 for place in range(length)],
        "labels": [-100] + [10 * n + place + 1 for place in range(1, length)],
    }
    for n, length in enumerate(LENGTHS)
]
SCRIPT = """
import numpy as np
import torch
import torch.nn.functional as F
from datasets import load_dataset
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

COLLATOR
data = load_dataset("json", data_files="rows.jsonl", split="train")
Trainer(
    model=AutoModelForCausalLM.from_pretrained("org/model"),
    args=TrainingArguments("out", per_device_train_batch_size=4, remove_unused_columns=False),
    train_dataset=data,
    data_collator=collate,
).train()
"""
COLLATORS = {
    "lists": """
        def collate(rows):
            longest = max(len(row["input_ids"]) for row in rows)
            ids, labels, mask = [], [], []
            for row in rows:
                missing = longest - len(row["input_ids"])
                ids.append(row["input_ids"] + [0] * missing)
                labels.append(row["labels"] + [-100] * missing)
                mask.append([1] * len(row["input_ids"]) + [0] * missing)
            return {
                "input_ids": torch.tensor(ids),
                "labels": torch.tensor(labels),
                "attention_mask": torch.tensor(mask),
            }
        """,
    "pad_sequence": """
        def collate(rows):
            ids = [torch.tensor(row["input_ids"], dtype=torch.long) for row in rows]
            labels = [torch.LongTensor(row["labels"]) for row in rows]
            input_ids = pad_sequence(ids, batch_first=True, padding_value=0)
            mask = torch.zeros_like(input_ids)
            for number, one in enumerate(ids):
                mask[number, : one.size(0)] = 1
            labels = pad_sequence(labels, True, -100)
            return dict(input_ids=input_ids, labels=labels, attention_mask=mask)
        """,
    "pad_sequence on the left": """
        def collate(rows):
            ids = [torch.tensor(row["input_ids"]).flip(0) for row in rows]
            input_ids = torch.flip(pad_sequence(ids, batch_first=True), dims=(1,))
            return {"input_ids": input_ids, "attention_mask": input_ids.ne(0).int()}
        """,
    "functional.pad in a class": """
        class Collator:
            def __init__(self, ignore):
                self.ignore = ignore

            def fill(self, numbers, length, value):
                return F.pad(torch.tensor(numbers), (0, length - len(numbers)), value=value)

            def __call__(self, rows):
                length = max(map(len, (row["input_ids"] for row in rows)))
                lengths = torch.tensor([len(row["input_ids"]) for row in rows])
                return {
                    "input_ids": torch.stack([self.fill(r["input_ids"], length, 0) for r in rows]),
                    "labels": torch.stack([self.fill(r["labels"], length, self.ignore) for r in rows]),
                    "attention_mask": (torch.arange(length)[None, :] < lengths[:, None]).long(),
                }

        collate = Collator(-100)
        """,
    "full and slices": """
        def collate(rows):
            width = max(len(row["input_ids"]) for row in rows)
            input_ids = torch.full((len(rows), width), 0, dtype=torch.long)
            labels = torch.full_like(input_ids, -100)
            for i, row in enumerate(rows):
                n = len(row["input_ids"])
                input_ids[i, -n:] = torch.tensor(row["input_ids"])
                labels[i, -n:] = torch.tensor(row["labels"])
            mask = (input_ids != 0).long()
            positions = (mask.cumsum(-1) - 1) * mask
            return {
                "input_ids": input_ids,
                "labels": labels,
                "attention_mask": mask,
                "position_ids": positions,
            }
        """,
    "numpy": """
        def collate(rows):
            width = max(len(row["input_ids"]) for row in rows)
            ids = np.zeros((len(rows), width), dtype=np.int64)
            for i, row in enumerate(rows):
                ids[i, : len(row["input_ids"])] = np.array(row["input_ids"])
            ids = torch.from_numpy(ids)
            labels = ids.clone()
            labels[ids == 0] = -100
            return {"input_ids": ids, "labels": labels, "attention_mask": ids.ne(0)}
        """,
    "where and masked_fill": """
        def collate(rows):
            ids = pad_sequence([torch.tensor(r["input_ids"]) for r in rows], batch_first=True)
            is_pad = ids.eq(0)
            labels = torch.where(is_pad, torch.full_like(ids, -100), ids)
            labels = labels.masked_fill(~is_pad & (ids % 10 == 1), -100)
            return {"input_ids": ids, "labels": labels, "attention_mask": (~is_pad).to(torch.long)}
        """,
    "a clone that is changed": """
        def collate(rows):
            ids = pad_sequence([torch.tensor(r["input_ids"]) for r in rows], batch_first=True)
            labels = ids.clone()
            labels[:, 0] = -100
            labels.masked_fill_(ids == 0, -100)
            return {"input_ids": ids, "labels": labels}
        """,
    "a name for the same tensor": """
        def collate(rows):
            ids = pad_sequence([torch.tensor(r["input_ids"]) for r in rows], batch_first=True)
            labels = ids
            labels[ids == 0] = 5
            return {"input_ids": ids, "labels": labels}
        """,
    "packed into one line": """
        def collate(rows):
            ids = torch.cat([torch.tensor(row["input_ids"]) for row in rows])
            positions = torch.cat([torch.arange(len(row["input_ids"])) for row in rows])
            labels = torch.cat([torch.tensor(row["labels"]) for row in rows])
            return {
                "input_ids": ids.unsqueeze(0),
                "labels": labels.view(1, -1),
                "position_ids": positions.reshape(1, len(ids)),
            }
        """,
    "shifted": """
        def collate(rows):
            ids = pad_sequence([torch.tensor(r["input_ids"]) for r in rows], batch_first=True)
            labels = torch.cat([ids[:, 1:], torch.full((ids.shape[0], 1), -100)], dim=1)
            return {"input_ids": ids, "labels": labels, "attention_mask": torch.ones(ids.shape)}
        """,
    "a row that is changed": """
        def collate(rows):
            labels = [row.pop("labels") for row in rows]
            ids = pad_sequence([torch.tensor(row["input_ids"]) for row in rows], batch_first=True)
            width = ids.shape[1]
            labels = torch.tensor([one + [-100] * (width - len(one)) for one in labels])
            return {"input_ids": ids, "labels": labels}
        """,
    "chosen by lists of indices": """
        def collate(rows):
            ids = pad_sequence([torch.tensor(r["input_ids"]) for r in rows], batch_first=True)
            order = torch.arange(len(rows)).flip(0)
            mixed = ids[order]
            first = ids[order, torch.zeros(len(rows), dtype=torch.long)]
            labels = torch.where(mixed == first[:, None], -100, mixed)
            return {"input_ids": mixed[:, torch.arange(2)], "labels": labels[..., [0, 1]]}
        """,
    "repeated and rolled": """
        def collate(rows):
            ids = pad_sequence([torch.tensor(r["input_ids"]) for r in rows], batch_first=True)
            first = ids[:, :1].repeat(1, 2)
            joined = torch.cat((first, ids), dim=-1)
            return {"input_ids": joined, "labels": torch.roll(joined, shifts=-1, dims=1)}
        """,
}


def follow(folder: Path, collator: str) -> ScriptCollator:
    """The collator of the followed script."""
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    script = folder / "train.py"
    script.write_text(SCRIPT.replace("COLLATOR", dedent(collator)), encoding="utf-8")
    tokenizer = ScriptTokenizer(lambda text, adds: [], lambda messages, adds: None, {}, lambda _: 0)
    made = read_token_rows(str(script), tokenizer).collator
    assert made is not None
    return made


def collator_that_runs(text: str) -> Callable[[Any], dict[str, Any]]:
    """The collator itself, made by Python."""
    names: dict[str, Any] = {
        "torch": torch,
        "F": functional,
        "pad_sequence": pad_sequence,
        "np": np,
    }
    exec(dedent(text), names)
    collate: Callable[[Any], dict[str, Any]] = names["collate"]
    return collate


@pytest.mark.parametrize("name", COLLATORS)
def test_batches_are_those_of_torch(name: str, tmp_path: Path) -> None:
    batches = follow(tmp_path, COLLATORS[name]).batches
    assert batches is not None
    collate = collator_that_runs(COLLATORS[name])
    assert len(batches) == 3
    for batch in batches:
        wanted = collate([{key: list(one) for key, one in ROWS[n].items()} for n in batch.rows])
        assert set(batch.arrays) == set(wanted)
        for key, tensor in wanted.items():
            np.testing.assert_array_equal(batch.arrays[key], tensor.numpy(), err_msg=key)


def test_the_shortest_and_longest_rows_are_in_one_batch(tmp_path: Path) -> None:
    made = follow(tmp_path, COLLATORS["lists"])
    lengths = [[LENGTHS[number] for number in batch.rows] for batch in made.batches or ()]
    assert lengths == [[3, 7, 2, 5], [4, 6, 8, 2], [9, 8, 2, 2]]
    assert (made.name, made.padding.side) == ("collate", "right")


UNKNOWN = {
    "a function that is not known": "ids = torch.nn.utils.rnn.pack_sequence(ids)",
    "rows of unlike length": "ids = torch.tensor([row['input_ids'] for row in rows])",
    "far too large": "ids = torch.zeros(100_000, 100_000)",
    "a large result of small tensors": "ids = torch.ones(3_000, 1) * torch.ones(1, 3_000)",
    "padded far too wide": "ids = torch.nn.functional.pad(torch.ones(1_000, 2), (0, 199_000))",
    "a long list many times": "ids = torch.tensor([[1] * 100_000] * 100_000)",
    "joined too often": "ids = torch.cat([torch.ones(100_000)] * 100_000)",
    "compared in all pairs": "ids = torch.ones(3_000, 1).eq(torch.ones(3_000))",
    "chosen in all pairs": "ids = torch.where(torch.ones(3_000, 1) == 1, torch.ones(3_000), 0)",
    "one row chosen too often": "ids = torch.ones(2, 90_000)[torch.zeros(90_000, dtype=torch.long)]",
    "one row set too often": "ids = torch.ones(2, 90_000)\n    ids[[0] * 90_000] = 1",
    "repeated too often": "ids = torch.ones(1_000).repeat(1_000_000, 1)",
}


@pytest.mark.parametrize("line", UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_known_is_no_batch(line: str, tmp_path: Path) -> None:
    text = f"""
        def collate(rows):
            ids = [torch.tensor(row["input_ids"]) for row in rows]
            {line}
            return {{"input_ids": ids}}
        """
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("COLLATOR", dedent(text)), encoding="utf-8")
    tokenizer = ScriptTokenizer(lambda text, adds: [], lambda messages, adds: None, {}, lambda _: 0)
    assert _batches_or_none(str(script), tokenizer) is None


def _batches_or_none(script: str, tokenizer: ScriptTokenizer) -> tuple[ScriptBatch, ...] | None:
    """The batches of a script; None where not even a batch of one row is known."""
    try:
        collator = read_token_rows(script, tokenizer).collator
    except DataError:
        return None
    assert collator is not None
    return collator.batches
