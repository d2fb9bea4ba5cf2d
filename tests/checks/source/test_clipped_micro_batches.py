"""Clipping while gradients are accumulated."""

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
    "before the condition": """
for step, batch in enumerate(loader):
    loss = model(**batch).loss / 8
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if (step + 1) % 8 == 0:
        optimizer.step()
        optimizer.zero_grad()
""",
}
RIGHT = {
    "a critic that steps in each pass": """
opt_d = torch.optim.AdamW(critic.parameters(), lr=1e-4)
opt_g = torch.optim.AdamW(model.parameters(), lr=1e-5)
for step, batch in enumerate(loader):
    opt_d.zero_grad()
    critic_loss(batch).backward()
    torch.nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
    opt_d.step()
    if step % 5 == 0:
        opt_g.zero_grad()
        policy_loss(batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt_g.step()
""",
    "inside of the condition": """
for step, batch in enumerate(loader):
    loss = model(**batch).loss / 8
    loss.backward()
    if (step + 1) % 8 == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
""",
    "a condition of its own": """
for step, batch in enumerate(loader):
    loss = model(**batch).loss / 8
    loss.backward()
    if (step + 1) % 8 == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if (step + 1) % 8 == 0:
        optimizer.step()
        optimizer.zero_grad()
""",
    "a step at each batch": """
for step, batch in enumerate(loader):
    loss = model(**batch).loss / 8
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
""",
}


def findings_of(text: str) -> list[str]:
    """The messages of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    return [
        one.message
        for one in run_rule(module, find_rule("gradients-clipped-at-each-micro-batch")).findings
    ]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_clipped_early(case: str) -> None:
    """The clipping is named, once."""
    assert len(findings_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_clipped_at_the_step(case: str) -> None:
    """Clipping right before the step is right."""
    assert findings_of(RIGHT[case]) == []
