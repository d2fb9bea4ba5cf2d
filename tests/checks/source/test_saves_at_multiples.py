"""Saves of a loop at every so many steps."""

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
    "multiples alone": """
for step, batch in enumerate(loader):
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if (step + 1) % 500 == 0:
        model.save_pretrained('out')
        tokenizer.save_pretrained('out')
""",
    "multiples on one process": """
for step, batch in enumerate(loader):
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if (step + 1) % 500 == 0:
        if rank == 0:
            model.save_pretrained('out')
""",
    "multiples of epochs": """
for epoch in range(11):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
    if epoch % 3 == 0:
        torch.save(model.state_dict(), f'{epoch}.pt')
""",
}
RIGHT = {
    "a last step that is a multiple": """
model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for step in range(1001):
    model(**next(it)).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step > 0 and step % 250 == 0:
        torch.save(model.state_dict(), "out.pt")
""",
    "a loop without an end": """
model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
step = 0
while True:
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 500 == 0:
            model.save_pretrained("out")
""",
    "steps whose last one is a multiple": """
model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
MAX_STEPS = 1000
for step in range(1, MAX_STEPS + 1):
    model(**next(it)).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 250 == 0:
        model.save_pretrained("out")
""",
    "epochs whose last one is a multiple": """
model = AutoModelForCausalLM.from_pretrained("model")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for epoch in range(10):
    for batch in loader:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if (epoch + 1) % 5 == 0:
        model.save_pretrained(f"out/{epoch}")
""",
    "at the end too": """
for step, batch in enumerate(loader):
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if (step + 1) % 500 == 0:
        model.save_pretrained('out')
model.save_pretrained('out')
""",
    "at the last step too": """
for step, batch in enumerate(loader):
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if (step + 1) % 500 == 0 or step + 1 == len(loader):
        model.save_pretrained('out')
""",
    "the best one": """
for step, batch in enumerate(loader):
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if (step + 1) % 500 == 0 and evaluate(model) < best:
        best = 0
    if best < 1:
        model.save_pretrained('out')
""",
    "the best one of an evaluation": """
for step, batch in enumerate(loader):
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if (step + 1) % 500 == 0:
        if evaluate(model) < best:
            model.save_pretrained('out')
""",
    "by a function that is not shown": """
for step, batch in enumerate(loader):
    model(**batch).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if (step + 1) % 500 == 0:
        model.save_pretrained('out')
save_all(model)
""",
}


def findings_of(text: str) -> list[str]:
    """The messages of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    return [one.message for one in run_rule(module, find_rule("last-steps-not-saved")).findings]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_end_is_lost(case: str) -> None:
    """The save is named, once."""
    assert len(findings_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_end_is_kept(case: str) -> None:
    """Any other save is right."""
    assert findings_of(RIGHT[case]) == []
