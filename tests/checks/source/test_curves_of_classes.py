"""Areas under curves that are computed from predicted classes, and from scores."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """import numpy as np, torch, evaluate
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score
logits, probs, labels = predict()
"""
LOOP = """
scores = []
for batch in loader:
    out = model(**batch).logits
    scores.extend(ADDED)
print(roc_auc_score(labels, scores))
"""


def count(text: str, folder: Path) -> int:
    (folder / "score.py").write_text(HEAD + text, encoding="utf-8")
    return len(lint([folder / "score.py"], select=["SRC407"], allow_unjudged=True).findings)


@pytest.mark.parametrize(
    "text",
    [
        "print(roc_auc_score(labels, np.argmax(logits, axis=-1)))",
        "print(roc_auc_score(y_true=labels, y_score=logits.argmax(1)))",
        "classes = (probs[:, 1] > 0.5).astype(int)\nprint(average_precision_score(labels, classes))",
        "classes = np.where(probs >= 0.5, 1, 0)\nprint(precision_recall_curve(labels, classes))",
        "print(roc_auc_score(labels, np.round(probs)))",
        "print(roc_auc_score(labels, [round(p) for p in probs[:, 1]]))",
        "auc = evaluate.load('roc_auc')\nprint(auc.compute(references=labels, prediction_scores=logits.argmax(-1)))",
        LOOP.replace("ADDED", "out.argmax(-1).cpu().tolist()"),
    ],
)
def test_curves_of_classes(text: str, tmp_path: Path) -> None:
    assert count(text, tmp_path) == 1


@pytest.mark.parametrize(
    "text",
    [
        "print(roc_auc_score(labels, probs[:, 1]))",
        "print(roc_auc_score(labels, logits[:, 1] - logits[:, 0]))",
        "print(roc_auc_score(labels.argmax(-1), probs[:, 1]))",
        "print(roc_auc_score(labels, np.round(probs[:, 1], 4)))",
        "print(roc_auc_score(labels, [round(p, ndigits=4) for p in probs[:, 1]]))",
        "print(roc_auc_score(labels, torch.softmax(torch.tensor(logits), -1)[:, 1].tolist()))",
        LOOP.replace("ADDED", "out.softmax(-1)[:, 1].cpu().tolist()"),
        "from sklearn.metrics import f1_score\nprint(f1_score(labels, logits.argmax(-1)))",
    ],
)
def test_curves_of_scores(text: str, tmp_path: Path) -> None:
    assert count(text, tmp_path) == 0
