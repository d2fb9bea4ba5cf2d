"""Classes that a single output learns as amounts, and rates at which a soft prompt stays as it is."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

LOAD = """
from transformers import AutoModelForSequenceClassification as A, BertForSequenceClassification
LABELS = ["Billing", "Bug", "Feature", "Login"]
model = A.from_pretrained("m", num_labels=1)
"""
AS_NUMBERS = {
    "index": 'def f(row):\n    row["label"] = float(LABELS.index(row["label"]))\n    return row',
    "dictionary": 'ID = {"a": 0, "b": 1, "c": 2}\ndef f(row):\n    return {"labels": ID[row["label"]]}',
    "comprehension": 'ID = {name: i for i, name in enumerate(LABELS)}\ndef f(row):\n    return {"label": ID[row["x"]]}',
    "floats": 'ID = {"a": 0.0, "b": 1.0, "c": 2.0}\nrows = [{"label": ID[r["x"]]} for r in data]',
    "class": 'model = BertForSequenceClassification.from_pretrained("m", num_labels=1)\n'
    'rows = [{"text": r["t"], "label": LABELS.index(r["x"])} for r in data]',
}
SOUND = {
    "as many outputs": 'rows = [{"label": LABELS.index(r["x"])} for r in d]',
    "grades": 'G = ["low", "medium", "high"]\nrows = [{"label": float(G.index(r["x"]))} for r in d]',
    "stars": 'G = ["1 star", "2 stars", "3 stars"]\nrows = [{"label": float(G.index(r["x"]))} for r in d]',
    "two": 'G = ["spam", "ham"]\nrows = [{"label": float(G.index(r["x"]))} for r in d]',
    "scores": 'rows = [{"label": float(r["score"])} for r in d]',
    "regression": '# regression on purpose\nrows = [{"label": float(LABELS.index(r["x"]))} for r in d]',
    "column": 'rows = [{"label": r["label"]} for r in d]',
}


def count(rule: str, text: str) -> int:
    return len(run_rule(parse_module(text, "train.py"), find_rule(rule)).findings)


@pytest.mark.parametrize("way", AS_NUMBERS)
def test_numbers_of_classes_under_one_output_are_told(way: str) -> None:
    assert count("classes-learned-as-numbers", LOAD + AS_NUMBERS[way]) >= 1


@pytest.mark.parametrize("way", SOUND)
def test_amounts_and_enough_outputs_are_fine(way: str) -> None:
    text = LOAD if way != "as many outputs" else LOAD.replace("num_labels=1", "num_labels=4")
    assert count("classes-learned-as-numbers", text + SOUND[way]) == 0


ONE_OUTPUT = """
import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, Trainer
model = AutoModelForSequenceClassification.from_pretrained("m", num_labels=1)
def metrics(pred):
{body}
trainer = Trainer(model=model, args=args, train_dataset=rows, compute_metrics=metrics)
trainer.train()
"""
REDUCED = {
    "numpy": "    return {'f1': f1(pred.label_ids, np.argmax(pred.predictions, axis=-1))}",
    "method": "    return {'f1': f1(pred.label_ids, pred.predictions.argmax(-1))}",
    "taken apart": "    logits, labels = pred\n    return {'a': (np.argmax(logits, axis=1) == labels).mean()}",
    "tuple": "    p = pred.predictions[0] if isinstance(pred.predictions, tuple) else pred.predictions\n"
    "    return {'a': accuracy(np.argmax(p, axis=1), pred.label_ids)}",
    "softmax": "    p = torch.softmax(torch.tensor(pred.predictions), dim=-1)\n    return {'a': auc(p)}",
}
NOT_REDUCED = {
    "threshold": "    return {'f1': f1(pred.label_ids, pred.predictions[:, 0] > 0.5)}",
    "over the rows": "    return {'best': np.argmax(pred.predictions, axis=0)}",
    "of another form": "    return {'a': np.argmax(pred.predictions.reshape(-1, 4), axis=1)}",
    "of the labels": "    return {'a': np.argmax(pred.label_ids, axis=1)}",
}


@pytest.mark.parametrize("way", REDUCED)
def test_argmax_and_softmax_over_one_output(way: str) -> None:
    text = ONE_OUTPUT.replace("{body}", REDUCED[way])
    assert count("classes-learned-as-numbers", text) == 1
    assert count("classes-learned-as-numbers", text.replace("labels=1", "labels=2")) == 0
    pairs = text + "class T(Trainer):\n    def compute_loss(self, m, x):\n        return x\n"
    assert count("classes-learned-as-numbers", pairs) == 0


@pytest.mark.parametrize("way", NOT_REDUCED)
def test_what_does_not_reduce_one_output(way: str) -> None:
    text = ONE_OUTPUT.replace("{body}", NOT_REDUCED[way])
    assert count("classes-learned-as-numbers", text) == 0


def test_argmax_of_logits_in_own_loop() -> None:
    loop = "\nfor b in loader:\n    guess = model(**b).logits.argmax(dim=-1)\n"
    assert count("classes-learned-as-numbers", LOAD + loop) == 1


SOFT = """
import torch
from peft import LoraConfig, PrefixTuningConfig, PromptTuningConfig, get_peft_model
from transformers import AutoModelForCausalLM, TrainingArguments
from trl import SFTConfig
model = AutoModelForCausalLM.from_pretrained("m")
"""
TUNED = 'peft = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=20)\n'
TOO_SMALL = {
    "arguments": TUNED + 'args = TrainingArguments("out", learning_rate=2e-5)',
    "trl": TUNED + 'args = SFTConfig("out", learning_rate=5e-5)',
    "constant": TUNED + 'LR = 1e-5\nargs = TrainingArguments("out", learning_rate=LR)',
    "loop": TUNED
    + "model = get_peft_model(model, peft)\noptimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)",
    "prefix": 'peft = PrefixTuningConfig(num_virtual_tokens=20)\nargs = TrainingArguments("out", learning_rate=2e-5)',
}
LARGE_ENOUGH = {
    "usual": TUNED + 'args = TrainingArguments("out", learning_rate=3e-2)',
    "low": TUNED + 'args = TrainingArguments("out", learning_rate=1e-3)',
    "large": TUNED + "optimizer = torch.optim.AdamW(model.parameters(), lr=0.3)",
    "default": TUNED + 'args = TrainingArguments("out")',
    "network": "peft = PrefixTuningConfig(num_virtual_tokens=20, prefix_projection=True)\n"
    'args = TrainingArguments("out", learning_rate=5e-5)',
    "two methods": TUNED
    + 'other = LoraConfig()\nargs = TrainingArguments("out", learning_rate=2e-5)',
}


@pytest.mark.parametrize("way", TOO_SMALL)
def test_a_rate_of_weights_for_a_soft_prompt_is_told(way: str) -> None:
    assert count("learning-rate-beyond-reason", SOFT + TOO_SMALL[way]) == 1


@pytest.mark.parametrize("way", LARGE_ENOUGH)
def test_a_rate_of_a_soft_prompt_is_fine(way: str) -> None:
    assert count("learning-rate-beyond-reason", SOFT + LARGE_ENOUGH[way]) == 0
