"""Cross-validations that train one model in all folds, and those that begin each fold anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

HEAD = """
import copy
import torch
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, TimeSeriesSplit
from transformers import AutoModelForSequenceClassification, Trainer
def build():
    return AutoModelForSequenceClassification.from_pretrained("m", num_labels=2)
def fit(model, rows):
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in rows:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
def score(model, rows):
    return sum(model(**batch).loss.item() for batch in rows)
model = build()
"""
TRAINER = (
    "    trainer = Trainer(model=model, args=args, train_dataset=data.select(train),"
    " eval_dataset=data.select(held))\n    trainer.train()\n    print(trainer.evaluate())\n"
)
FOLDS = "for fold, (train, held) in enumerate(KFold(5, shuffle=True).split(data)):\n"
BY_HAND = (
    "for fold in range(5):\n    train = [r for i, r in enumerate(rows) if i % 5 != fold]\n"
    "    held = [r for i, r in enumerate(rows) if i % 5 == fold]\n"
)
ONE_MODEL = {
    "trainer": FOLDS + TRAINER,
    "a name for the division": "kf = StratifiedKFold(n_splits=5)\n"
    "for train, held in kf.split(data, labels):\n" + TRAINER,
    "a name for the splits": "splits = list(GroupKFold(3).split(data, groups=g))\n"
    "for train, held in splits:\n" + TRAINER,
    "a function": FOLDS + "    fit(model, pick(train))\n    print(score(model, pick(held)))\n",
    "by hand": BY_HAND + "    fit(model, train)\n    print(score(model, held))\n",
    "own loop": "optimizer = torch.optim.AdamW(model.parameters())\n" + FOLDS + "    for batch in"
    " pick(train):\n        model(**batch).loss.backward()\n        optimizer.step()\n"
    "        optimizer.zero_grad()\n    print(score(model, pick(held)))\n",
}
ANEW = {
    "made in the loop": FOLDS + "    model = build()\n" + TRAINER,
    "copied": FOLDS + TRAINER.replace("model=model", "model=copy.deepcopy(model)"),
    "first weights loaded": "first = copy.deepcopy(model.state_dict())\n"
    + FOLDS
    + "    model.load_state_dict(first)\n"
    + TRAINER,
    "by model_init": FOLDS + TRAINER.replace("model=model", "model_init=build"),
    "one fold": FOLDS + "    if fold != args.fold:\n        continue\n" + TRAINER,
    "the first fold": FOLDS + TRAINER + "    break\n",
    "frozen encoder": FOLDS + "    head = torch.nn.Linear(8, 2)\n    for batch in pick(train):\n"
    "        with torch.no_grad():\n            h = model(**batch).logits\n"
    "        head(h).sum().backward()\n",
    "detached encoder": FOLDS + "    head = torch.nn.Linear(8, 2)\n    for batch in pick(train):\n"
    "        h = model(**batch).logits.detach()\n        head(h).sum().backward()\n",
    "later rows": "for train, held in TimeSeriesSplit(5).split(data):\n" + TRAINER,
    "asked only": FOLDS + "    print(score(model, pick(held)))\n",
    "features": FOLDS + "    head.fit(features(model, pick(train)))\n",
    "copied in the function": "def run(model, rows):\n    mine = copy.deepcopy(model)\n"
    "    fit(mine, rows)\n" + FOLDS + "    run(model, pick(train))\n",
    "epochs": "for epoch in range(3):\n    fit(model, rows)\n    print(score(model, held))\n",
    "strings": 'for a, b in enumerate("x y".split(" ")):\n    fit(model, rows)\n',
}


def findings(body: str, folder: Path) -> list[str]:
    script = folder / "folds.py"
    script.write_text(HEAD + body, encoding="utf-8")
    report = lint([script], select=["SRC054"], allow_unjudged=True)
    return [one.message for one in report.findings]


@pytest.mark.parametrize("body", ONE_MODEL.values(), ids=ONE_MODEL)
def test_one_model_for_all_folds(body: str, tmp_path: Path) -> None:
    (message,) = findings(body, tmp_path)
    assert "each fold continues with the `model`" in message


@pytest.mark.parametrize("body", ANEW.values(), ids=ANEW)
def test_each_fold_begins_anew(body: str, tmp_path: Path) -> None:
    assert findings(body, tmp_path) == []
