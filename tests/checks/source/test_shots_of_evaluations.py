"""Few-shot examples, and the rows that are asked with them."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import random
from tqdm import tqdm
"""
FAULTY = {
    "the first rows": """
shots = rows[:4]
for row in rows:
    print(ask(shots, row))
""",
    "rows drawn at random": """
few_shot = random.sample(rows, 4)
for number, row in enumerate(tqdm(rows)):
    print(ask(few_shot, row))
""",
    "batches of all rows": """
shots = render(rows[:4])
for start in range(0, len(rows), 16):
    print(model.generate(shots, rows[start:start + 16]))
""",
}
RIGHT = {
    "the others for each row": """
shots = rows[:4]
for i, row in enumerate(rows):
    others = [one for one in shots if one is not row]
    print(ask(prompt(others, row)))
""",
    "a look at the examples": """
demos = rows[:5]
print("look:", demos)
for row in rows:
    print(ask(row["question"]))
""",
    "compared with the examples": """
shots = rows[:4]
for row in rows:
    if row not in shots:
        print(ask(prompt(shots, row)))
""",
    "rows of the training": """
shots = train_rows[:4]
for row in rows:
    print(ask(shots, row))
""",
    "the others": """
shots = rows[:4]
for row in rows[4:]:
    print(ask(shots, row))
""",
    "the others under the same name": """
shots = rows[:4]
rows = rows[4:]
for row in rows:
    print(ask(shots, row))
""",
    "passed over": """
shots = rows[:4]
for row in rows:
    if row in shots:
        continue
    print(ask(shots, row))
""",
    "a look at the first rows": """
shown = rows[:4]
for row in rows:
    print(ask(row))
""",
}


def findings_of(text: str) -> list[str]:
    """The messages of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    return [
        one.message
        for one in run_rule(module, find_rule("shots-among-the-evaluated-rows")).findings
    ]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_asked_too(case: str) -> None:
    """The examples are named, once."""
    assert len(findings_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_not_asked(case: str) -> None:
    """Examples that are no row of the evaluation are right."""
    assert findings_of(RIGHT[case]) == []
