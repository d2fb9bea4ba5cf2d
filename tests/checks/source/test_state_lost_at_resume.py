"""What a resumed run restores, and what it loses."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import torch
from transformers import get_linear_schedule_with_warmup
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
saved = torch.load("last.pt")
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
"""
FAULTY = {
    "the schedule, made after the optimizer's state": """
scheduler = get_linear_schedule_with_warmup(optimizer, 100, 3000)
for epoch in range(saved['epoch'] + 1, 3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
""",
    "a schedule of PyTorch": """
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3000)
for epoch in range(saved['epoch'] + 1, 3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
""",
    "the best loss": """
best_loss = float('inf')
first_epoch = saved['epoch'] + 1
for epoch in range(first_epoch, 3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    loss = evaluate(model)
    if loss < best_loss:
        best_loss = loss
        model.save_pretrained('best')
""",
    "the number of the epoch": """
first = saved['epoch']
for epoch in range(first, 3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save({'model': model.state_dict(), 'epoch': epoch}, 'last.pt')
""",
}
RIGHT = {
    "all of it": """
scheduler = get_linear_schedule_with_warmup(optimizer, 100, 3000)
scheduler.load_state_dict(saved['scheduler'])
best_loss = saved['best_loss']
first = saved['epoch'] + 1
for epoch in range(first, 3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    loss = evaluate(model)
    if loss < best_loss:
        best_loss = loss
        model.save_pretrained('best')
    torch.save({'model': model.state_dict(), 'epoch': epoch}, 'last.pt')
""",
    "the place in the schedule": """
scheduler = get_linear_schedule_with_warmup(optimizer, 100, 3000, last_epoch=saved['step'])
for epoch in range(3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
""",
    "a raised number in the file": """
first = saved['epoch']
for epoch in range(first, 3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save({'model': model.state_dict(), 'epoch': epoch + 1}, 'last.pt')
""",
    "everything in a loop": """
scheduler = get_linear_schedule_with_warmup(optimizer, 100, 3000)
for name, item in parts.items():
    item.load_state_dict(saved[name])
for epoch in range(3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
""",
    "a second stage that begins its own schedule": """
scheduler = get_linear_schedule_with_warmup(optimizer, 0, saved['steps_left'])
for epoch in range(3):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
""",
}


def findings_of(text: str) -> list[str]:
    """The messages of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    return [one.message for one in run_rule(module, find_rule("resumed-run-loses-state")).findings]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_lost(case: str) -> None:
    """The part that begins again is named, once."""
    assert len(findings_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_restored(case: str) -> None:
    """What is restored in any way is right."""
    assert findings_of(RIGHT[case]) == []
