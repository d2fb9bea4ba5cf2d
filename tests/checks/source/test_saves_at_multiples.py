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

STEP = """    model(**next(it)).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SAVE = """        model.save_pretrained("out")
"""
LAST_PASSES = {
    "for step in range(500):": {
        "step % 100 == 99": True,
        "step % 100 == 100 - 1": True,
        "not (step + 1) % 100": True,
        "step and (step + 1) % 100 == 0": True,
        "args.save and step % 100 == 99": True,
        "1 + step % 250 == 250": True,
        "step % 100 == 0": False,
        "step % 100 == 49": False,
        "not step % 100": False,
        "(step + 1) % 300 == 0": False,
        "step % 0 == 0": False,
    },
    "for step in tqdm(range(550)):": {"step % 100 == 49": True, "step % 100 == 99": False},
    "for step, _ in enumerate(range(500), 1):": {"not step % 100": True, "step % 100 == 1": False},
    "for step, _ in enumerate(range(500), start=first):": {"not step % 100": False},
    "for i, step in enumerate(range(10, 110)):": {
        "step % 50 == 9": True,
        "i % 50 == 49": True,
        "i % 50 == 9": False,
    },
    "for step in range(0, 500, 2):": {"step % 100 == 98": True, "step % 100 == 99": False},
    "for step in range(first, 500):": {"(step + 1) % 100 == 0": True, "step % 100 == 0": False},
    "for step in range(limit):": {"step % 100 == 99": False},
    "for step, batch in enumerate(loader, 1):": {"step % 100 == 0": False},
    "steps = range(1, 501)\nif rank == 0:\n    steps = tqdm(steps)\nfor step in steps:": {
        "step % 100 == 0": True,
        "step % 300 == 0": False,
    },
    "steps = range(1, 501)\nif rank == 0:\n    steps = range(1, 450)\nfor step in steps:": {
        "step % 100 == 0": False,
    },
    "steps = tqdm(steps)\nfor step in steps:": {"step % 100 == 0": False},
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


@pytest.mark.parametrize(
    ("loop", "condition", "is_kept"),
    [(loop, *one) for loop, conditions in LAST_PASSES.items() for one in conditions.items()],
)
def test_condition_is_computed_for_the_last_pass(loop: str, condition: str, is_kept: bool) -> None:
    """The save in the last pass is found in any form of the condition."""
    found = findings_of(f"{loop}\n{STEP}    if {condition}:\n{SAVE}")
    assert len(found) == (0 if is_kept else 1)


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        (
            f"step = 0\nwhile step < 500:\n{STEP}    step += 1\n    if step % 100 == 0:\n{SAVE}",
            True,
        ),
        (
            f"step = 0\nwhile step < 500:\n{STEP}    if step % 100 == 0:\n{SAVE}    step += 1\n",
            False,
        ),
        (
            f"step = 1\nwhile step <= 500:\n{STEP}    if step % 100 == 0:\n{SAVE}    step += 1\n",
            True,
        ),
        (f"n = 0\nfor _ in range(500):\n{STEP}    n += 1\n    if n % 100 == 0:\n{SAVE}", True),
        (f"n = 0\nfor _ in loader:\n{STEP}    n += 1\n    if n % 100 == 0:\n{SAVE}", False),
        (
            f"n = 0\nfor _ in range(500):\n    n = f(n)\n{STEP}    n += 1\n    if n % 100 == 0:\n{SAVE}",
            False,
        ),
        (
            f"for n in range(500):\n{STEP}    if n % 100 != 99:\n        log()\n    else:\n{SAVE}",
            True,
        ),
        (
            f"for n in range(500):\n{STEP}    if n % 100 == 99:\n        log()\n    else:\n{SAVE}",
            False,
        ),
        (f"for n in range(500):\n    n = f(n)\n{STEP}    if n % 100 == 99:\n{SAVE}", False),
    ],
)
def test_counter_and_branch_of_last_pass(text: str, is_kept: bool) -> None:
    """A counter that each pass raises, and the other branch of a condition, are followed too."""
    assert len(findings_of(text)) == (0 if is_kept else 1)
