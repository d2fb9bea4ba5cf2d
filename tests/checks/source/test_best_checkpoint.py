"""Which checkpoint is kept: by a metric that is computed, and in the direction that the metric has."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint


def count(folder: Path, rule: str, text: str, **files: str) -> int:
    """How often a rule speaks about a script; `__` in a name of another file is its dot."""
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content, encoding="utf-8")
    script = folder / "train.py"
    script.write_text(text, encoding="utf-8")
    return len(lint([script], select=[rule]).findings)


TRAINER = """
import evaluate
from datasets import load_dataset
from transformers import Trainer, TrainingArguments
ds = load_dataset("a/b")
def score(pair):
    {body}
args = TrainingArguments("out", load_best_model_at_end=True, metric_for_best_model="{metric}")
trainer = Trainer(model, args, train_dataset=ds["train"], eval_dataset={rows}{more})
trainer.train()
"""
GIVEN = ", compute_metrics=score"
ONE = 'ds["test"]'
SEVERAL = 'dict(a=ds["a"], b=ds["b"])'
ACCURACY = 'return {"accuracy": 1.0}'
F1 = 'return evaluate.load("f1").compute(predictions=pair[0], references=pair[1])'
KEPT = 'out = {}\n    out["f1"] = 1.0\n    return out'
CHOSEN = 'return {k: 1.0 for k in ("rouge1", "rougeL")}'
ADDED = (
    'out = evaluate.load("accuracy").compute(predictions=pair[0])\n'
    '    out.update({"f1": 1.0})\n    return out'
)


@pytest.mark.parametrize(
    ("metric", "body", "rows", "more", "expected"),
    [
        ("f1", ACCURACY, ONE, GIVEN, 1),
        ("f1", ACCURACY, ONE, "", 1),
        ("eval_rouge_l", CHOSEN, ONE, GIVEN, 1),
        ("accuracy", F1, ONE, GIVEN, 1),
        ("loss", ACCURACY, SEVERAL, GIVEN, 1),
        ("f1", KEPT, ONE, ", compute_metrics=lambda pair: {'accuracy': 1.0}", 1),
        ("accuracy", ACCURACY, ONE, GIVEN, 0),
        ("eval_f1", F1, ONE, GIVEN, 0),
        ("f1", KEPT, ONE, GIVEN, 0),
        ("f1", ADDED, ONE, GIVEN, 0),
        ("rougeL", CHOSEN, ONE, GIVEN, 0),
        ("a_loss", ACCURACY, SEVERAL, GIVEN, 0),
        ("loss", ACCURACY, ONE, "", 0),
        ("f1", "return elsewhere(pair)", ONE, GIVEN, 0),
        ("f1", 'return {"accuracy": 1.0, **elsewhere(pair)}', ONE, GIVEN, 0),
        ("f1", ACCURACY, ONE, ", **more", 0),
        ("math_loss", ACCURACY, "sets()", "", 0),  # may be one of several sets
    ],
)
def test_the_metric_of_the_best_model_is_computed(
    metric: str, body: str, rows: str, more: str, expected: int, tmp_path: Path
) -> None:
    text = TRAINER.format(metric=metric, body=body, rows=rows, more=more)
    assert count(tmp_path, "best-model-metric-not-computed", text) == expected


def test_a_trainer_of_the_project_may_evaluate_by_itself(tmp_path: Path) -> None:
    text = TRAINER.format(metric="f1", body=ACCURACY, rows=ONE, more=GIVEN)
    own = "class Own(Trainer):\n    def evaluate(self):\n        return {'eval_f1': 1.0}\n"
    text = text.replace("args =", own + "args =").replace("= Trainer(", "= Own(")
    assert count(tmp_path, "best-model-metric-not-computed", text) == 0


def test_arguments_of_a_file_name_the_metric(tmp_path: Path) -> None:
    text = TRAINER.format(metric="f1", body=ACCURACY, rows=ONE, more=GIVEN)
    text = text.replace("import evaluate", "import sys\nfrom transformers import HfArgumentParser")
    begin = text.index("args = ")
    end = text.index("trainer =")
    read = "(args,) = HfArgumentParser(TrainingArguments).parse_json_file(sys.argv[1])\n"
    text = text[:begin] + read + text[end:]
    given = '{"output_dir": "out", "load_best_model_at_end": true, "metric_for_best_model": "%s"}'
    rule = "best-model-metric-not-computed"
    assert count(tmp_path, rule, text, args__json=given % "f1") == 1
    assert count(tmp_path, rule, text, args__json=given % "accuracy") == 0
    # Of two such files it is not seen which one is meant.
    assert count(tmp_path, rule, text, args__json=given % "f1", other__json=given % "f1") == 0


LATER = """
from transformers import Trainer, TrainingArguments
args = TrainingArguments("out", load_best_model_at_end=True, metric_for_best_model="{}")
args.greater_is_better = {}
Trainer(model, args, train_dataset=rows, eval_dataset=rows).train()
"""
LIGHTNING = """
from {}.callbacks import EarlyStopping, ModelCheckpoint
keep = {}
"""
LOOP = """
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("some/base")
best = {begin}
for epoch in range(3):
    {value} = evaluate_epoch(model)
    if {test}:
        best = {value}
        model.save_pretrained("best")
"""
CHECKPOINT = "ModelCheckpoint(monitor='val_loss', mode='{}')"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LATER.format("accuracy", False), 1),
        (LATER.format("accuracy", True), 0),
        (LATER.format("quality", False), 0),
        (LIGHTNING.format("lightning.pytorch", CHECKPOINT.format("max")), 1),
        (LIGHTNING.format("pytorch_lightning", "ModelCheckpoint(monitor='val_acc')"), 1),
        (LIGHTNING.format("pytorch_lightning", "EarlyStopping('val_f1', patience=2)"), 1),
        (LIGHTNING.format("lightning.pytorch", CHECKPOINT.format("min")), 0),
        (LIGHTNING.format("lightning.pytorch", "ModelCheckpoint(every_n_epochs=1)"), 0),
        (LIGHTNING.format("lightning.pytorch", "ModelCheckpoint(monitor='x', mode='max')"), 0),
        (LOOP.format(begin="0.0", value="loss", test="loss > best"), 1),
        (LOOP.format(begin="0.0", value="loss", test="best < loss"), 1),
        (LOOP.format(begin="None", value="acc", test="best is None or acc < best"), 1),
        (LOOP.format(begin="9.9", value="loss", test="loss < best"), 0),
        (LOOP.format(begin="0.0", value="acc", test="acc > best"), 0),
        (LOOP.format(begin="0.0", value="it", test="it > best"), 0),
        (LOOP.format(begin="0.0", value="loss", test="loss > 3"), 0),
    ],
)
def test_the_direction_of_what_is_kept(text: str, expected: int, tmp_path: Path) -> None:
    assert count(tmp_path, "worst-checkpoint-kept", text) == expected
