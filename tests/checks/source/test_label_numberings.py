"""Which label ids depend on the order of a set, a folder or a file, and which are fixed."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint
from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import json, os
from pathlib import Path
import pandas as pd
import torch
from datasets import ClassLabel, load_dataset
from sklearn.preprocessing import LabelEncoder
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
train = pd.read_csv("train.csv")
test = pd.read_csv("test.csv")
"""
LOAD = '\nmodel = AutoModelForSequenceClassification.from_pretrained("out/best")\n'
TRAIN = (
    '\nmodel = AutoModelForSequenceClassification.from_pretrained("bert", num_labels=3)\n'
    'trainer = Trainer(model, TrainingArguments("out"), train_dataset=rows)\ntrainer.train()\n'
    'trainer.save_model("out/best")\n'
)
UNFIXED = {
    "list of a set": "labels = list(set(train['label']))\nlabel2id = {name: i for i, name in enumerate(labels)}"
    + LOAD,
    "index": "names = list({one for one in train['label']})\n"
    + "test['y'] = [names.index(one) for one in test['label']]\nlabels = names.index('a')"
    + LOAD,
    "trained": "label2id = dict(zip(set(train.label), range(3)))" + TRAIN,
    "filled set": "labels = set()\nfor row in train.itertuples():\n    labels.add(row.label)\n"
    + "id2label = dict(enumerate(labels))"
    + LOAD,
    "loop": "label2id = {}\nfor i, name in enumerate(set(train.label)):\n    label2id[name] = i\n"
    + LOAD,
    "two sets": "label2id = {n: i for i, n in enumerate(set(train.label) | set(test.label))}"
    + LOAD,
    "lookup": "classes = list(set(train.label))"
    + LOAD
    + "label = classes[model(**batch).logits.argmax()]",
    "ClassLabel": "feature = ClassLabel(names=list(set(train.label)))" + TRAIN,
    "folders": "label2id = {n: i for i, n in enumerate(os.listdir('data'))}" + LOAD,
    "paths": "classes = [p.name for p in Path('data').iterdir()]\nlabel2id = {n: i for i, n in enumerate(classes)}"
    + TRAIN,
    "config of the evaluation": "labels = list(set(train.label))\n"
    + 'model = AutoModelForSequenceClassification.from_pretrained("out/best", id2label=dict(enumerate(labels)))',
    "numbered by appearance": "test['y'] = pd.factorize(test.label)[0]\ntrain['y'] = pd.factorize(train.label)[0]"
    + LOAD,
    "unique": "label2id = {n: i for i, n in enumerate(train.label.unique())}\n"
    + "labels_of_test = {n: i for i, n in enumerate(test.label.unique())}"
    + LOAD,
    "encoder of each": "train['label'] = LabelEncoder().fit_transform(train.label)\n"
    + "test['label'] = LabelEncoder().fit_transform(test.label)"
    + LOAD,
}
FIXED = {
    "sorted": "labels = sorted(set(train['label']))\nlabel2id = {name: i for i, name in enumerate(labels)}"
    + LOAD,
    "sorted in place": "labels = list(set(train.label))\nlabels.sort()\nid2label = dict(enumerate(labels))"
    + LOAD,
    "written out": "labels = ['a', 'b', 'c']\nid2label = dict(enumerate(labels))" + LOAD,
    "kept in the config": "labels = list(set(train.label))\nid2label = dict(enumerate(labels))\n"
    + TRAIN.replace("num_labels=3", "id2label=id2label"),
    "kept in a file": "labels = list(set(train.label))\nid2label = dict(enumerate(labels))\n"
    + "json.dump(id2label, open('labels.json', 'w'))\n"
    + TRAIN,
    "of the config": "seen = list(set(train.label))\nlabel2id = {n: i for i, n in enumerate(seen)}"
    + LOAD
    + "name = model.config.id2label[3]",
    "numbers": "label2id = {n: i for i, n in enumerate(set(train.number))}" + LOAD,
    "printed": "for i, label in enumerate(set(train.label)):\n    print(i, label)" + LOAD,
    "counted": "num_labels = len(set(train.label))" + LOAD,
    "no classifier": "labels = list(set(train.label))\nlabel2id = {n: i for i, n in enumerate(labels)}",
    "not saved": "labels = list(set(train.label))\nlabel2id = {n: i for i, n in enumerate(labels)}"
    + TRAIN.replace('trainer.save_model("out/best")\n', ""),
    "one encoder": "encoder = LabelEncoder().fit(train.label)\ntest['label'] = encoder.transform(test.label)"
    + LOAD,
    "one factorize": "train['label'] = pd.factorize(train.label)[0]" + LOAD,
    "sorted folders": "label2id = {n: i for i, n in enumerate(sorted(os.listdir('data')))}" + LOAD,
    "numbers by int": "label2id = {n: i for i, n in enumerate({int(one) for one in train['label']})}"
    + LOAD,
}


def found(folder: Path, code: str) -> list[str]:
    (folder / "train.csv").write_text("label,number\nb,1\na,2\nc,3\n", encoding="utf-8")
    (folder / "test.csv").write_text("label,number\nc,1\nb,2\n", encoding="utf-8")
    module = parse_module(HEAD + code, str(folder / "classify.py"))
    rule = find_rule("label-ids-in-no-fixed-order")
    return [one.message for one in run_rule(module, rule).findings]


@pytest.mark.parametrize("code", UNFIXED.values(), ids=UNFIXED)
def test_ids_without_a_fixed_order_are_found(tmp_path: Path, code: str) -> None:
    (message,) = found(tmp_path, code)
    assert "label" in message


@pytest.mark.parametrize("code", FIXED.values(), ids=FIXED)
def test_fixed_ids_are_left_alone(tmp_path: Path, code: str) -> None:
    assert found(tmp_path, code) == []


def test_a_seed_of_hashes_in_a_job_is_read(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("PYTHONHASHSEED=0 python classify.py\n", encoding="utf-8")
    assert found(tmp_path, UNFIXED["list of a set"]) == []


@pytest.mark.parametrize(
    ("order", "count"),
    [("{c for _, c in rows}", 1), ("sorted({c for _, c in rows})", 0), ("dict.fromkeys(rows)", 0)],
)
def test_a_map_that_a_helper_gives_is_followed(tmp_path: Path, order: str, count: int) -> None:
    helper = f"def label_map(rows):\n    return {{n: i for i, n in enumerate({order})}}\n"
    script = f"from common import label_map\n{HEAD}l2i = label_map(pairs){LOAD}"
    (tmp_path / "common.py").write_text(helper, encoding="utf-8")
    (tmp_path / "evaluate.py").write_text(script, encoding="utf-8")
    findings = lint([tmp_path], select=["label-ids-in-no-fixed-order"]).findings
    assert len(findings) == count
