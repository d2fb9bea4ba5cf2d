"""The direction of a schedule that waits for a plateau, and its metric."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
"""
FAULTY = {
    "a loss that is to rise": """
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode='max')
for epoch in range(3):
    val_loss = evaluate(model)
    scheduler.step(val_loss)
""",
    "an accuracy under the default": """
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
for epoch in range(3):
    accuracy = evaluate(model)
    scheduler.step(accuracy)
""",
    "a key of the metrics": """
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
for epoch in range(3):
    metrics = evaluate(model)
    scheduler.step(metrics['eval_f1'])
""",
}
RIGHT = {
    "a loss under the default": """
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
for epoch in range(3):
    val_loss = evaluate(model)
    scheduler.step(val_loss)
""",
    "an accuracy that is to rise": """
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode='max')
for epoch in range(3):
    accuracy = evaluate(model)
    scheduler.step(accuracy)
""",
    "a metric that is not known": """
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode='max')
for epoch in range(3):
    value = evaluate(model)
    scheduler.step(value)
""",
}


def findings_of(text: str) -> list[str]:
    """The messages of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    return [
        one.message
        for one in run_rule(module, find_rule("plateau-in-the-wrong-direction")).findings
    ]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_wrong_direction(case: str) -> None:
    """The schedule is named, once."""
    assert len(findings_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_right_direction(case: str) -> None:
    """A mode that fits its metric is right."""
    assert findings_of(RIGHT[case]) == []
