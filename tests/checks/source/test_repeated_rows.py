"""Which rows are repeated before they are divided, and which repeats and divisions are sound."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import json, random
import numpy as np
import pandas as pd
from collections import defaultdict
from datasets import Dataset, concatenate_datasets, interleave_datasets, load_dataset
from imblearn.over_sampling import RandomOverSampler, SMOTE
from sklearn.model_selection import GroupShuffleSplit, StratifiedKFold, train_test_split
from sklearn.utils import resample
import torch
from torch.utils.data import random_split
import nlpaug.augmenter.word as naw
"""
LIST = 'rows = [json.loads(line) for line in open("tickets.jsonl")]\n'
RARE = 'rare = [row for row in rows if row["label"] == "refund"]\n'
CUT = "random.shuffle(rows)\ncut = int(0.9 * len(rows))\ntrain, val = rows[:cut], rows[cut:]\n"
FRAME = 'frame = pd.read_csv("tickets.csv")\nrare = frame[frame.label == 1]\n'
DATA = 'data = load_dataset("json", data_files="a.jsonl", split="train")\n'
REPEATED = {
    "choices": LIST + RARE + "rows += random.choices(rare, k=500)\n" + CUT,
    "choices by class": LIST
    + "groups = defaultdict(list)\nfor row in rows:\n    groups[row['label']].append(row)\n"
    + "size = max(len(one) for one in groups.values())\nrows = []\nfor one in groups.values():\n"
    + "    rows.extend(one)\n    rows.extend(random.choices(one, k=size - len(one)))\n"
    + CUT,
    "times": LIST + RARE + "rows = rows + rare * 4\n" + CUT,
    "times in a function": LIST
    + "def balance(rows):\n    out = []\n    for row in rows:\n        out.extend([row] * 3)\n    return out\n"
    + "rows = balance(rows)\n"
    + CUT,
    "resample": FRAME
    + "frame = pd.concat([frame, resample(rare, n_samples=900)])\ntrain, val = train_test_split(frame)",
    "sample by class": FRAME
    + "frame = frame.groupby('label').apply(lambda one: one.sample(900, replace=True))\n"
    + "train, val = train_test_split(frame.reset_index(drop=True), test_size=0.1)",
    "sample and drop": FRAME
    + "frame = pd.concat([frame, rare.sample(900, replace=True)], ignore_index=True)\n"
    + "val = frame.sample(frac=0.1)\ntrain = frame.drop(val.index)",
    "concat twice": FRAME
    + "frame = pd.concat([frame] + [rare] * 3)\ntrain, val = train_test_split(frame)",
    "oversampler": FRAME
    + "x, y = RandomOverSampler().fit_resample(frame[['text']], frame['label'])\n"
    + "a, b, c, d = train_test_split(x, y)",
    "folds": FRAME
    + "x, y = SMOTE().fit_resample(frame[['a']], frame['label'])\n"
    + "for train, val in StratifiedKFold(5).split(x, y):\n    print(len(train))",
    "data sets": DATA
    + "rare = data.filter(lambda row: row['label'] == 1)\n"
    + "data = concatenate_datasets([data, rare, rare]).train_test_split(0.1)",
    "interleaved": DATA
    + 'other = load_dataset("json", data_files="b.jsonl", split="train")\n'
    + 'data = interleave_datasets([data, other], stopping_strategy="all_exhausted").train_test_split(0.1)',
    "random_split": LIST
    + RARE
    + "train, val = random_split(rows + random.choices(rare, k=90), [0.9, 0.1])",
    "helper over groups": "def balance(df, column):\n    size = df[column].value_counts().max()\n"
    + "    parts = [g if len(g) == size else pd.concat([g, g.sample(size - len(g), replace=True)])\n"
    + "             for _, g in df.groupby(column)]\n"
    + "    return pd.concat(parts).sample(frac=1.0).reset_index(drop=True)\n"
    + 'frame = balance(pd.read_csv("a.csv"), "label")\ntrain, val = train_test_split(frame)',
    "one branch of a loop": "def even(frame):\n    out = []\n    for _, part in frame.groupby('label'):\n"
    + "        if len(part) < 900:\n            part = resample(part, n_samples=900)\n"
    + "        out.append(part)\n    return pd.concat(out)\n"
    + 'train, val = train_test_split(even(pd.read_csv("a.csv")))',
    "groups by setdefault": LIST
    + "groups = {}\nfor row in rows:\n    groups.setdefault(row['label'], []).append(row)\nrows = []\n"
    + "for one in groups.values():\n    rows += random.choices(one, k=900)\n"
    + CUT,
    "filled up": LIST
    + "groups = defaultdict(list)\nfor row in rows:\n    groups[row['label']].append(row)\n"
    + "size = max(map(len, groups.values()))\n"
    + "rows = [row for one in groups.values() for row in (one * (size // len(one) + 1))[:size]]\n"
    + CUT,
    "numbers of rows": DATA
    + "rare = [i for i, label in enumerate(data['label']) if label == 1]\n"
    + "data = data.select(list(range(len(data))) + rare * 5).train_test_split(0.1)",
    "numbers that a generator draws": DATA
    + "data = data.select(np.random.default_rng(0).choice(len(data), 900, replace=True)).train_test_split(0.1)",
    "translated": LIST
    + "aug = naw.BackTranslationAug()\nmore = []\nfor row in rows:\n    more.append(row)\n"
    + '    more.append({"text": aug.augment(row["text"]), "label": row["label"]})\n'
    + "rows = more\n"
    + CUT,
    "rephrased": LIST
    + "out = []\nfor row in rows:\n    out.append(row)\n    new = dict(row)\n"
    + '    new["text"] = naw.SynonymAug().augment(row["text"])[0]\n    out.append(new)\n'
    + "train, val = train_test_split(out, test_size=0.1)",
}
SOUND = {
    "behind the split": LIST
    + CUT
    + 'rare = [row for row in train if row["label"] == 1]\ntrain += random.choices(rare, k=500)',
    "undersampled": LIST + RARE + "rows = random.sample(rows, len(rare)) + rare\n" + CUT,
    "templates": 'ASKS = ["Say {x}.", "Tell {x}."]\n'
    + LIST
    + 'rows = [{"prompt": random.choices(ASKS)[0].format(x=row["x"]), "answer": row["y"]} for row in rows]\n'
    + CUT,
    "drawn questions": 'ASKS = ["Say {x}.", "Tell {x}."]\nnames = json.load(open("names.json"))\n'
    + "rows = [ask.format(x=random.choice(names)) for ask in random.choices(ASKS, k=900)]\n"
    + CUT,
    "copies taken out": LIST
    + RARE
    + "rows += random.choices(rare, k=500)\n"
    + CUT
    + 'ids = {row["id"] for row in train}\nval = [row for row in val if row["id"] not in ids]',
    "groups": FRAME
    + "frame = pd.concat([frame, rare.sample(900, replace=True)])\n"
    + "for a, b in GroupShuffleSplit(1).split(frame, groups=frame['id']):\n    print(a, b)",
    "a part with replacement for a look": FRAME
    + "print(frame.sample(5, replace=True))\ntrain, val = train_test_split(frame)",
    "bootstrap of a score": FRAME
    + "train, val = train_test_split(frame)\n"
    + "scores = [val.sample(len(val), replace=True).label.mean() for _ in range(99)]",
    "drawn without replacement": FRAME
    + "frame = resample(frame, replace=False, n_samples=900)\ntrain, val = train_test_split(frame)",
    "two files": FRAME
    + 'frame = pd.concat([frame, pd.read_csv("more.csv")])\ntrain, val = train_test_split(frame)',
    "training part of a frame": FRAME
    + "train, val = train_test_split(frame)\nx, y = RandomOverSampler().fit_resample(train[['text']], train['label'])",
    "no copies left": FRAME
    + "frame = pd.concat([frame, frame]).drop_duplicates()\ntrain, val = train_test_split(frame)",
    "cleaned rows": LIST
    + 'rows = [{"text": row["text"].strip(), "label": row["label"]} for row in rows]\n'
    + CUT,
    "helper on the training part": "def balance(df):\n"
    + "    return pd.concat([g.sample(900, replace=True) for _, g in df.groupby('label')])\n"
    + 'train, val = train_test_split(pd.read_csv("a.csv"))\ntrain = balance(train)',
    "groups made smaller": "def balance(df):\n    return pd.concat([g.sample(90) for _, g in df.groupby('label')])\n"
    + 'train, val = train_test_split(balance(pd.read_csv("a.csv")))',
    "numbers drawn once": DATA
    + "data = data.select(np.random.default_rng(0).choice(len(data), 900, replace=False)).train_test_split(0.1)",
    "numbers of the training part": DATA
    + "parts = data.train_test_split(0.1)\ntrain = parts['train'].select(list(range(90)) + [1] * 5)",
    "a scaled matrix": "x = np.load('x.npy')\nx = (x * np.load('scale.npy'))[:900]\na, b = train_test_split(x)\n"
    + 'frame = pd.read_csv("a.csv")',
    "ids of classes": LIST + "weights = [1] * len(rows)\n" + CUT,
}


def found(code: str) -> list[str]:
    rule = find_rule("rows-repeated-before-the-split")
    return [one.message for one in run_rule(parse_module(HEAD + code, "prepare.py"), rule).findings]


@pytest.mark.parametrize("code", REPEATED.values(), ids=REPEATED)
def test_rows_that_are_repeated_before_the_split_are_found(code: str) -> None:
    (message,) = found(code)
    assert "copies of one row" in message


@pytest.mark.parametrize("code", SOUND.values(), ids=SOUND)
def test_other_preparations_are_left_alone(code: str) -> None:
    assert found(code) == []
