"""Trainers that are given an optimizer of the script."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("model")
"""
FAULTY = {
    "the default of PyTorch": """
args = TrainingArguments(output_dir='out', learning_rate=1e-5)
optimizer = torch.optim.AdamW(model.parameters())
trainer = Trainer(model=model, args=args, optimizers=(optimizer, None))
""",
    "another weight decay": """
args = TrainingArguments(output_dir='out', weight_decay=0.1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0)
trainer = Trainer(model=model, args=args, optimizers=(optimizer, schedule))
""",
}
RIGHT = {
    "the same rate": """
args = TrainingArguments(output_dir='out', learning_rate=1e-5)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
trainer = Trainer(model=model, args=args, optimizers=(optimizer, None))
""",
    "a rate of the optimizer alone": """
args = TrainingArguments(output_dir='out')
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
trainer = Trainer(model=model, args=args, optimizers=(optimizer, None))
""",
    "groups with rates of their own": """
args = TrainingArguments(output_dir='out', learning_rate=1e-5)
optimizer = torch.optim.AdamW([{'params': head, 'lr': 1e-3}, {'params': body, 'lr': 1e-5}])
trainer = Trainer(model=model, args=args, optimizers=(optimizer, None))
""",
    "no optimizer": """
args = TrainingArguments(output_dir='out', learning_rate=1e-5)
optimizer = torch.optim.AdamW(model.parameters())
trainer = Trainer(model=model, args=args)
""",
}


def findings_of(text: str) -> list[str]:
    """The messages of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    return [
        one.message
        for one in run_rule(module, find_rule("trainer-takes-the-optimizers-rate")).findings
    ]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_another_value(case: str) -> None:
    """The value that is not used is named, once."""
    assert len(findings_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_one_value(case: str) -> None:
    """Equal values, and values that are given once, are right."""
    assert findings_of(RIGHT[case]) == []
