"""Predicted classes that are scored beside the labels of other rows, and beside their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

SCRIPT = """import pandas as pd
import torch
from torch.utils.data import DataLoader
from sklearn.metrics import accuracy_score
from transformers import AutoModelForSequenceClassification, AutoTokenizer
tok = AutoTokenizer.from_pretrained("m")
model = AutoModelForSequenceClassification.from_pretrained("m")
frame = pd.read_csv("test.csv")
ORDER
def make_loader(rows):
    enc = tok(rows.text.tolist(), padding=True, return_tensors="pt")
    return DataLoader([{k: v[i] for k, v in enc.items()} for i in range(len(rows))], batch_size=8, shuffle=SHUFFLE)
def predict(loader):
    out = []
    for batch in loader:
        out.extend(model(**batch).logits.argmax(-1).tolist())
    return out
loader = make_loader(frame)
"""
HEAD_ONLY = """
gold, guess = [], []
for batch in loader:
    gold.extend(batch["labels"].tolist())
    guess.extend(model(**batch).logits.argmax(-1).tolist())
print(accuracy_score(gold, guess))
"""
WHOLE = "print(accuracy_score(frame['label'].tolist(), predict(loader)))"


@pytest.mark.parametrize(
    ("shuffle", "order", "end", "found"),
    [
        ("True", "", WHOLE, 1),
        ("True", "", "guess = predict(loader)\nprint(accuracy_score(y_true=frame['label'], y_pred=guess))", 1),
        ("False", "", WHOLE, 0),
        ("False", "frame = frame.sample(frac=1)", WHOLE, 0),
        ("True", "", HEAD_ONLY, 0),
        ("True", "", "print(accuracy_score(load_gold(), predict(loader)))", 0),
    ],
)  # fmt: skip
def test_classes_beside_labels(
    shuffle: str, order: str, end: str, found: int, tmp_path: Path
) -> None:
    text = SCRIPT.replace("SHUFFLE", shuffle).replace("ORDER", order) + end
    (tmp_path / "score.py").write_text(text, encoding="utf-8")
    report = lint([tmp_path / "score.py"], select=["SRC029"], allow_unjudged=True)
    assert len(report.findings) == found
