"""Labels that are a copy of ids which the file fills up with pads itself."""

from __future__ import annotations

import pytest

from tests.source.modules import module
from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule

HEAD = """
import torch
import torch.nn.functional as F
from torch import tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer
tok = AutoTokenizer.from_pretrained("m/base")
PAD = tok.pad_token_id
def encode(row):
    ids = tok(row["text"])["input_ids"]
    n = 512 - len(ids)
"""
TRAIN = """
Trainer(model=AutoModelForCausalLM.from_pretrained("m/base"), train_dataset=rows.map(encode)).train()
"""
LEARNED = {
    "list": "ids = ids + [tok.pad_token_id] * n\n    return {'input_ids': ids, 'labels': ids.copy()}",
    "tensor": "x = torch.tensor(ids + [PAD] * n)\n    return {'input_ids': x, 'labels': x.clone()}",
    "left": "x = [PAD] * n + ids\n    return dict(input_ids=x, labels=list(x))",
    "F.pad": "x = F.pad(tensor(ids), (0, n), value=PAD)\n    return {'input_ids': x, 'labels': x.clone()}",
    "entry": "x = ids + [PAD] * n\n    row['labels'] = x[:]\n    row['labels'] = list(x)\n    return row",
}
LEFT_OUT = {
    "own labels": "return {'input_ids': ids + [PAD] * n, 'labels': ids + [-100] * n}",
    "masked": "x = tensor(ids + [PAD] * n)\n    y = x.clone()\n    y[x == PAD] = -100\n"
    "    return {'input_ids': x, 'labels': y}",
    "not padded": "return {'input_ids': ids + [tok.eos_token_id], 'labels': list(ids)}",
    "another filler": "x = ids + [tok.eos_token_id] * 1\n    return {'input_ids': x, 'labels': list(x)}",
    "ignored by the loss": "x = ids + [PAD] * n\n    loss = torch.nn.CrossEntropyLoss(ignore_index=PAD)\n"
    "    return {'input_ids': x, 'labels': list(x)}",
}


@pytest.mark.parametrize(
    ("body", "count"),
    [*((one, 1) for one in LEARNED.values()), *((one, 0) for one in LEFT_OUT.values())],
)
def test_pads_that_are_added_by_hand(body: str, count: int) -> None:
    made = module(f"{HEAD}    {body}\n{TRAIN}")
    assert len(run_rule(made, find_rule("labels-copy-input-ids")).findings) == count


PERPLEXITY = """
import math
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("m/base")
model = AutoModelForCausalLM.from_pretrained("m/base").eval()
class Collate:
    def __init__(self, tok):
        self.tok = tok
    def __call__(self, texts):
        batch = self.tok(texts, padding=True, return_tensors="pt")
        batch["labels"] = batch["input_ids"].clone()
        return batch
nll = n = 0
for batch in DataLoader(texts, 8, collate_fn=Collate(tok)):
    count = (batch["labels"] != -100).sum().item()
    nll += model(**batch).loss.item() * count
    n += count
print(math.exp(nll / n))
"""
MASKING = 'batch["labels"][batch["attention_mask"] == 0] = -100\n        return batch'


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ("", "", 1),
        ('(batch["labels"] != -100)', 'batch["labels"].ne(-100)', 1),
        ("return batch", MASKING, 0),
        ("texts, 8", "texts, 1", 0),
        ("padding=True, ", "", 0),
    ],
)
def test_labels_that_are_only_counted_are_not_masked(old: str, new: str, count: int) -> None:
    made = module(PERPLEXITY.replace(old, new) if old else PERPLEXITY)
    assert len(run_rule(made, find_rule("labels-copy-input-ids")).findings) == count
