"""Losses of one's own whose batch has labels for the Trainer to count, and those whose batch may have none (SRC013)."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

CLASS = """
from transformers import Trainer, TrainingArguments

class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        name = inputs.pop("name", None)
        {}
        return loss

args = TrainingArguments("out", gradient_accumulation_steps=8)
Own(model=net, args=args, train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("loss = model(**inputs).loss", True),
        ("loss = self.loss_of(model, inputs)", True),
        ("loss = super().compute_loss(model, inputs)", True),
        ("loss = model.score(inputs)", True),
        ("loss = own(model(inputs['input_ids']), inputs['labels'])", True),
        # What takes the batch apart alone may read columns of any name.
        ("features, targets = self.collect(inputs); loss = self.loss(features, targets)", False),
        ("loss = own(model(inputs['ids']), inputs['label'])", False),
    ],
)
def test_batches_with_labels(lines: str, found: bool) -> None:
    rule = find_rule("custom-loss-breaks-gradient-accumulation")
    findings = run_rule(parse_module(CLASS.format(lines), "train.py"), rule).findings
    assert bool(findings) == found
