"""Iterators that a loop over epochs reads."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
xs, ys = [], []
"""
FAULTY = {
    "zip": """
pairs = zip(xs, ys)
for epoch in range(3):
    for x, y in pairs:
        step(x, y)
""",
    "a numbered loader": """
batches = enumerate(loader)
for epoch in range(3):
    for number, batch in tqdm(batches):
        step(batch)
""",
    "a generator expression": """
prompts = (line for line in file)
for model in models:
    for prompt in prompts:
        ask(model, prompt)
""",
    "a generator function": """
def batches(rows):
    for row in rows:
        yield row


made = batches(rows)
for epoch in range(3):
    for batch in made:
        step(batch)
""",
}
RIGHT = {
    "an outer loop that returns after it": """
def find(paths):
    lines = (parse(line) for line in open('a.jsonl'))
    for path in paths:
        for line in lines:
            use(path, line)
        return path
""",
    "the first epoch alone": """
batches = (collate(rows) for rows in chunks)
for epoch in range(3):
    if epoch == 0:
        for batch in batches:
            warm_up(batch)
    train(model)
""",
    "an outer loop that ends after it": """
lines = (parse(line) for line in open('a.jsonl'))
for path in paths:
    if not path.exists():
        continue
    for line in lines:
        use(path, line)
    break
""",
    "a loader": """
for epoch in range(3):
    for batch in loader:
        step(batch)
""",
    "made in each epoch": """
for epoch in range(3):
    pairs = zip(xs, ys)
    for x, y in pairs:
        step(x, y)
    for x, y in zip(xs, ys):
        step(x, y)
""",
    "endless": """
def stream():
    while True:
        yield from rows


made = stream()
for epoch in range(3):
    for batch in made:
        step(batch)
""",
    "a part in each epoch": """
made = iter(loader)
for epoch in range(3):
    for batch in made:
        if step(batch):
            break
""",
    "some in each pass": """
made = iter(loader)
for step in range(100):
    for batch in islice(made, 8):
        add(batch)
    step()
""",
    "read on by the inner loop": """
lines = iter(file)
for line in lines:
    for other in lines:
        join(line, other)
""",
}


def findings_of(text: str) -> list[str]:
    """The messages of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    return [
        one.message
        for one in run_rule(module, find_rule("iterator-empty-after-first-epoch")).findings
    ]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_used_up(case: str) -> None:
    """The loop that finds nothing is named, once."""
    assert len(findings_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_begins_again(case: str) -> None:
    """What begins again, and what never ends, is right."""
    assert findings_of(RIGHT[case]) == []
