"""Metrics whose sides are exchanged, and copies that are evaluated instead of the model; with their near misses."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

SCORE = """import json, evaluate
from sklearn.metrics import accuracy_score, classification_report, f1_score, precision_score
rows = [json.loads(line) for line in open("preds.jsonl")]
preds = [row["prediction"] for row in rows]
golds = [row["label"] for row in rows]
"""
LOOP = """import copy, torch
from transformers import AutoModelForSequenceClassification
from data import train, val
model = AutoModelForSequenceClassification.from_pretrained("m").cuda()
other = copy.deepcopy(model).eval()
opt = torch.optim.AdamW(model.parameters(), 2e-5)
for epoch in range(4):
    for batch in train:
        TRAIN
        opt.step()
        opt.zero_grad()
    UPDATE
    with torch.no_grad():
        hits = 0
        for batch in val:
            hits += (EVALUATED(**batch).logits.argmax(-1) == batch["labels"]).sum().item()
    print(epoch, hits)
"""
TRAIN = "model(**batch).loss.backward()"


def codes(text: str, folder: Path, code: str) -> int:
    (folder / "a.py").write_text(text, encoding="utf-8")
    return len(lint([folder / "a.py"], select=[code], allow_unjudged=True).findings)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("precision_score(preds, golds, average='macro')", 1),
        ("classification_report(preds, golds)", 1),
        ("f1_score(preds, golds, average='weighted')", 1),
        ("evaluate.load('rouge').compute(predictions=golds, references=preds)", 1),
        ("precision_score(golds, preds, average='macro')", 0),
        ("precision_score(y_pred=preds, y_true=golds, average='macro')", 0),
        ("accuracy_score(preds, golds)", 0),
        ("f1_score(preds, golds, average='macro')", 0),
        ("evaluate.load('rouge').compute(predictions=preds, references=golds)", 0),
        ("evaluate.load('accuracy').compute(predictions=golds, references=preds)", 0),
        ("pred_labels, true_labels = golds, preds\nprecision_score(pred_labels, x)", 0),
    ],
)
def test_sides_of_metrics(text: str, found: int, tmp_path: Path) -> None:
    assert codes(SCORE + text + "\n", tmp_path, "SRC410") == found


@pytest.mark.parametrize(
    ("train", "update", "evaluated", "found"),
    [
        (TRAIN, "pass", "other", 1),
        (TRAIN, "other.load_state_dict(model.state_dict())", "other", 0),
        (TRAIN, "[o.lerp_(p, 0.1) for o, p in zip(other.parameters(), model.parameters())]", "other", 0),
        (TRAIN, "pass", "model", 0),
        (TRAIN, "refresh(other, model)", "other", 0),
        ("kl(model(**batch), other(**batch)).backward()", "pass", "other", 0),
        (TRAIN, "print(model.generate(**prompt))", "other", 0),
        ("refs = [other(**b).logits for b in val]\n        dpo(model(**batch), refs).backward()", "pass", "model", 0),
        (TRAIN, "print([model(**b).loss for b in val])", "other", 0),
    ],
)  # fmt: skip
def test_copies_that_are_evaluated(
    train: str, update: str, evaluated: str, found: int, tmp_path: Path
) -> None:
    text = LOOP.replace("TRAIN", train).replace("UPDATE", update).replace("EVALUATED", evaluated)
    assert codes(text, tmp_path, "SRC411") == found


@pytest.mark.parametrize("kept", ["base_model", "model_before", "teacher"])
def test_a_copy_that_is_kept_as_it_was(kept: str, tmp_path: Path) -> None:
    text = LOOP.replace("TRAIN", TRAIN).replace("UPDATE", "pass").replace("EVALUATED", kept)
    assert codes(text.replace("other =", f"{kept} ="), tmp_path, "SRC411") == 0


def test_a_copy_that_the_loss_is_computed_with_before_the_training(tmp_path: Path) -> None:
    text = LOOP.replace("TRAIN", TRAIN).replace("EVALUATED", "len")
    before = "cached = [other(**b).logits for b in val]\nfor epoch"
    text = text.replace("UPDATE", "pass").replace("for epoch", before)
    assert codes(text, tmp_path, "SRC411") == 0
