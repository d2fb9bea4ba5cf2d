"""Which comparisons of tokens with labels leave the shift out, however they are written, and which do not."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
import torch.nn.functional as F
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, Trainer
tok = AutoTokenizer.from_pretrained("gpt2")
model = AutoModelForCausalLM.from_pretrained("gpt2").eval()
"""
UNSHIFTED = {
    "a class that scores": """
class Score:
    right = count = 0
    def update(self, logits, ids, mask):
        guess = logits.argmax(-1)
        self.right += ((guess == ids) & mask.bool()).sum().item()
        self.count += mask.sum().item()
s = Score()
for b in loader:
    s.update(model(b["input_ids"]).logits, b["input_ids"], b["attention_mask"])
""",
    "beside a shifted loss": """
for b in loader:
    ids = b["input_ids"]
    labels = ids.clone()
    labels[ids == tok.pad_token_id] = -100
    logits = model(input_ids=ids).logits
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    keep = labels != -100
    print(loss, torch.eq(torch.argmax(logits, dim=-1)[keep], labels[keep]).float().mean())
""",
    "a trainer that logs": """
class T(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kw):
        out = model(input_ids=inputs["input_ids"], labels=inputs["labels"])
        acc = (out.logits.argmax(dim=-1) == inputs["labels"]).float().mean()
        self.log({"acc": acc.item()})
        return out.loss
T(model=model, train_dataset=load_dataset("x")).train()
""",
    "a metric object that a method is handed": """
from torchmetrics.classification import MulticlassAccuracy
import lightning as L
class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("gpt2")
        self.val_acc = MulticlassAccuracy(9, ignore_index=-100)
    def shared(self, batch, acc):
        out = self.model(**batch)
        acc(out.logits.argmax(-1).flatten(), batch["labels"].flatten())
        return out.loss
    def validation_step(self, batch, _):
        self.log("val_loss", self.shared(batch, self.val_acc))
L.Trainer().fit(Lit(), DataLoader(load_dataset("x")))
""",
    "a helper with scikit-learn": """
from sklearn.metrics import accuracy_score
def score(guess, labels):
    keep = labels != -100
    return accuracy_score(labels[keep].cpu(), guess[keep].cpu())
for b in loader:
    out = model(**b)
    print(out.loss, score(out.logits.argmax(-1), b["labels"]))
""",
    "a metric of evaluate": """
import evaluate
def add(metric, out, batch):
    metric.add_batch(predictions=out.logits.argmax(-1).flatten(), references=batch["labels"].flatten())
accuracy = evaluate.load("accuracy")
for b in loader:
    out = model(**b)
    out.loss.backward()
    add(accuracy, out, b)
""",
}

RIGHT = {
    "a metric object with a shift": """
from torchmetrics import Accuracy
def step(batch, metric):
    out = model(**batch)
    metric.update(out.logits[:, :-1].argmax(-1), batch["labels"][:, 1:])
    return out.loss
acc = Accuracy(task="multiclass", num_classes=9, ignore_index=-100)
for b in loader:
    step(b, acc).backward()
""",
    "a metric object of a tagger": """
from torchmetrics import Accuracy
from transformers import AutoModelForTokenClassification
tagger = AutoModelForTokenClassification.from_pretrained("bert")
acc = Accuracy(task="multiclass", num_classes=9, ignore_index=-100)
for b in loader:
    out = tagger(**b)
    acc(out.logits.argmax(-1), b["labels"])
    out.loss.backward()
""",
    "scikit-learn of an encoder and decoder": """
from sklearn.metrics import accuracy_score
from transformers import AutoModelForSeq2SeqLM
t5 = AutoModelForSeq2SeqLM.from_pretrained("t5-small")
for b in loader:
    out = t5(**b)
    print(out.loss, accuracy_score(b["labels"].flatten(), out.logits.argmax(-1).flatten()))
""",
    "shifted": """
for b in loader:
    ids = b["input_ids"]
    guess = model(ids).logits.argmax(-1)
    print((guess[:, :-1] == ids[:, 1:]).float().mean())
""",
    "masked model": """
mlm = AutoModelForMaskedLM.from_pretrained("bert")
for b in loader:
    print((mlm(b["input_ids"]).logits.argmax(-1) == b["input_ids"]).float().mean())
""",
    "last place": """
for b in loader:
    print((model(b["input_ids"]).logits[:, -1].argmax(-1) == b["answer"]).float().mean())
""",
    "shifted in the collator": """
def collate(rows):
    ids = tok([r["t"] for r in rows], padding=True, return_tensors="pt").input_ids
    return ids[:, :-1], ids[:, 1:]
for x, y in DataLoader(load_dataset("x", split="test"), batch_size=2, collate_fn=collate):
    print((model(x).logits.argmax(-1) == y).float().mean())
""",
}


def count_findings(text: str) -> int:
    rule = find_rule("metrics-unshifted")
    return len(run_rule(parse_module(text, "train.py"), rule).findings)


@pytest.mark.parametrize("text", UNSHIFTED.values(), ids=UNSHIFTED)
def test_comparisons_without_a_shift_are_found(text: str) -> None:
    assert count_findings(HEAD + text) == 1


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_other_comparisons_are_left_alone(text: str) -> None:
    assert count_findings(HEAD + text) == 0
