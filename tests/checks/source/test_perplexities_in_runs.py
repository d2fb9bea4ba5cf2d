"""Which means of losses or perplexities leave the number of tokens out, however they are written."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import math, torch, numpy as np
import torch.nn.functional as F
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    DataCollatorWithPadding,
)
tok = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained("gpt2").eval()
"""
UNWEIGHTED = {
    "sums in a dictionary": """
stats = {"loss": 0.0, "n": 0}
def add(batch):
    with torch.no_grad():
        out = model(**batch, labels=batch["input_ids"])
    stats["loss"] += out.loss.item()
    stats["n"] += 1
def collate(rows):
    return tok([r["text"] for r in rows], padding="longest", return_tensors="pt")
for b in DataLoader(load_dataset("x", split="test"), batch_size=8, collate_fn=collate):
    add(b)
print(math.exp(stats["loss"] / stats["n"]))
""",
    "function in a comprehension": """
@torch.no_grad()
def ppl(text):
    ids = tok(text, return_tensors="pt").input_ids
    return math.exp(model(ids, labels=ids).loss)
print(np.mean([ppl(t) for t in open("a.txt")]))
""",
    "meter": """
class Average:
    def __init__(self):
        self.total, self.count = 0.0, 0
    def update(self, value):
        self.total += value
        self.count += 1
    @property
    def mean(self):
        return self.total / self.count
meter = Average()
rows = load_dataset("x", split="test").map(lambda r: tok(r["t"]))
loader = DataLoader(rows, batch_size=4, collate_fn=DataCollatorForLanguageModeling(tok, mlm=False))
with torch.inference_mode():
    for batch in loader:
        meter.update(model(**batch).loss.item())
print(torch.exp(torch.tensor(meter.mean)))
""",
    "own cross-entropy": """
scores = []
with torch.no_grad():
    for t in load_dataset("x", split="test"):
        ids = tok(t["text"], return_tensors="pt").input_ids
        lg = model(ids).logits
        scores.append(F.cross_entropy(lg[0, :-1], ids[0, 1:]).exp().item())
print(sum(scores) / len(scores))
""",
}

WEIGHTED_OR_NO_MEAN = {
    "weighted": """
total, n = 0.0, 0
with torch.no_grad():
    for t in load_dataset("x", split="test"):
        ids = tok(t["text"], return_tensors="pt").input_ids
        k = ids.size(1) - 1
        total += model(ids, labels=ids).loss.item() * k
        n += k
print(math.exp(total / n))
""",
    "summed over tokens": """
total, n = 0.0, 0
with torch.no_grad():
    for b in DataLoader(load_dataset("x"), batch_size=4, collate_fn=DataCollatorWithPadding(tok)):
        lg = model(**b).logits
        total += F.cross_entropy(lg[:, :-1].flatten(0, 1), b["input_ids"][:, 1:].flatten(), reduction="sum")
        n += b["attention_mask"].sum()
print(torch.exp(total / n))
""",
    "shown beside a training": """
total = 0
for i, b in enumerate(DataLoader(load_dataset("x"), batch_size=4, collate_fn=DataCollatorWithPadding(tok))):
    loss = model(**b).loss
    loss.backward()
    total += loss.item()
    print(math.exp(total / (i + 1)))
""",
    "one loss": """
ids = tok("a", return_tensors="pt").input_ids
loss = model(ids, labels=ids).loss
print(torch.exp(loss / 2), math.exp(loss.mean()))
""",
    "median": """
import statistics
with torch.no_grad():
    p = [model(**tok(t, return_tensors="pt")).loss.exp().item() for t in open("a.txt")]
print(statistics.median(p), max(p))
""",
    "rows alone": """
losses = []
with torch.no_grad():
    for b in DataLoader(load_dataset("x"), batch_size=1, collate_fn=DataCollatorWithPadding(tok)):
        losses.append(model(**b, labels=b["input_ids"]).loss * b["input_ids"].numel())
print(torch.exp(torch.stack(losses).mean()))
""",
}


def count_findings(text: str) -> int:
    rule = find_rule("perplexity-not-weighted-by-tokens")
    return len(run_rule(parse_module(text, "train.py"), rule).findings)


@pytest.mark.parametrize("text", UNWEIGHTED.values(), ids=UNWEIGHTED)
def test_means_without_weights_are_found(text: str) -> None:
    assert count_findings(HEAD + text) == 1


@pytest.mark.parametrize("text", WEIGHTED_OR_NO_MEAN.values(), ids=WEIGHTED_OR_NO_MEAN)
def test_other_figures_are_left_alone(text: str) -> None:
    assert count_findings(HEAD + text) == 0
