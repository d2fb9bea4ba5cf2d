"""Which labels are shifted before a causal model shifts them, however they are written, and which are not."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.module import parse_module

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
from datasets import load_dataset
from torch.utils.data import DataLoader, Dataset, TensorDataset
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)
from peft import LoraConfig, get_peft_model
tok = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-0.5B")
"""
SHIFTED_TWICE = {
    "a function that makes rows": """
def shift(ids):
    return {"input_ids": ids[:-1], "labels": ids[1:]}
rows = [shift(tok(r["t"])["input_ids"]) for r in load_dataset("x", split="train")]
Trainer(model=AutoModelForCausalLM.from_pretrained("gpt2"), train_dataset=rows).train()
""",
    "a stream that packs": """
from torch.utils.data import IterableDataset
class Stream(IterableDataset):
    def __init__(self, n): self.n = n
    def __iter__(self):
        buf = []
        for r in load_dataset("x", split="train", streaming=True):
            buf.extend(tok(r["t"])["input_ids"])
            while len(buf) > self.n:
                chunk = torch.tensor(buf[: self.n + 1])
                buf = buf[self.n + 1 :]
                yield dict(input_ids=chunk[:-1], labels=chunk[1:].clone())
model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
for b in DataLoader(Stream(512), batch_size=2):
    out = model(input_ids=b["input_ids"].cuda(), labels=b["labels"].cuda())
    out["loss"].backward()
""",
    "a trainer": """
class T(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kw):
        ids = inputs["input_ids"]
        out = model(input_ids=ids[:, :-1], attention_mask=inputs["attention_mask"][:, :-1], labels=ids[:, 1:])
        return (out.loss, out) if return_outputs else out.loss
T(model=AutoModelForCausalLM.from_pretrained("gpt2"), train_dataset=load_dataset("x")).train()
""",
    "joined with a filler": """
model = get_peft_model(AutoModelForCausalLM.from_pretrained("gpt2"), LoraConfig())
for b in loader:
    ids = b["input_ids"]
    pad = torch.full((ids.size(0), 1), -100)
    y = torch.cat([ids[:, 1:], pad], dim=1)
    loss = model(ids, labels=y)[0]
    loss.backward()
""",
    "a mask one token short": """
def enc(r):
    p = tok(r["q"])["input_ids"]
    a = tok(r["a"])["input_ids"]
    return {"input_ids": p + a, "labels": [-100] * (len(p) - 1) + a + [-100]}
ds = load_dataset("x", split="train").map(enc)
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model, TrainingArguments("o"), DataCollatorForSeq2Seq(tok), ds).train()
""",
}

RIGHT = {
    "own loss of shifted rows": """
class T(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kw):
        out = model(input_ids=inputs["input_ids"])
        return F.cross_entropy(out.logits.flatten(0, 1), inputs["labels"].flatten())
def enc(r):
    ids = tok(r["t"])["input_ids"]
    return {"input_ids": ids[:-1], "labels": ids[1:]}
T(model=AutoModelForCausalLM.from_pretrained("gpt2"), train_dataset=load_dataset("x").map(enc)).train()
""",
    "both cut at the front": """
model = AutoModelForCausalLM.from_pretrained("gpt2")
for b in loader:
    ids = b["input_ids"][:, 1:]
    labels = b["input_ids"][:, 1:].masked_fill(b["attention_mask"][:, 1:] == 0, -100)
    model(input_ids=ids, labels=labels).loss.backward()
""",
    "encoder-decoder": """
model = AutoModelForSeq2SeqLM.from_pretrained("t5-small")
for b in loader:
    y = b["y"]
    model(input_ids=b["x"], decoder_input_ids=y[:, :-1], labels=y[:, 1:]).loss.backward()
""",
    "answer behind a masked prompt": """
def enc(r):
    p = tok(r["q"])["input_ids"]
    full = p + tok(r["a"])["input_ids"] + [tok.eos_token_id]
    return {"input_ids": full, "labels": [-100] * len(p) + full[len(p):]}
ds = load_dataset("x", split="train").map(enc)
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model, TrainingArguments("o"), DataCollatorForSeq2Seq(tok), ds).train()
""",
    "logits alone are read": """
model = AutoModelForCausalLM.from_pretrained("gpt2")
for b in loader:
    x, y = b["input_ids"][:, :-1], b["input_ids"][:, 1:]
    out = model(input_ids=x, labels=y)
    F.cross_entropy(out.logits.flatten(0, 1), y.flatten()).backward()
""",
}


def count_findings(text: str) -> int:
    rule = find_rule("labels-shifted-by-hand")
    return len(run_rule(parse_module(text, "train.py"), rule).findings)


@pytest.mark.parametrize("text", SHIFTED_TWICE.values(), ids=SHIFTED_TWICE)
def test_labels_that_are_shifted_twice_are_found(text: str) -> None:
    assert count_findings(HEAD + text) == 1


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_other_labels_are_left_alone(text: str) -> None:
    assert count_findings(HEAD + text) == 0
