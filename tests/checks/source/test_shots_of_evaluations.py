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
    "drawn for each row": """
for row in rows:
    shots = random.sample(rows, 4)
    print(ask(shots, row))
""",
    "drawn for each row by a function": """
def prompt_of(item, pool, shots, rng):
    examples = rng.sample(pool, shots)
    return "".join(render(one, True) for one in examples) + render(item, False)

test = read("test.jsonl")
pool = test
for item in tqdm(test):
    answer = ask(prompt_of(item, pool, 5, random.Random(3)))
    if not answer:
        continue
    print(answer == item["answer"])
""",
    "drawn for each row, by name": """
def prompt_of(item, pool):
    few_shot = random.sample(pool, 3)
    return render(few_shot, item)

for n, item in enumerate(rows):
    print(model.generate(prompt_of(item, pool=rows)))
""",
}
RIGHT = {
    "drawn for each row from other rows": """
def prompt_of(item, pool, shots):
    examples = random.sample(pool, shots)
    return render(examples, item)

test = read("test.jsonl")
pool = read("dev.jsonl")
for item in test:
    print(ask(prompt_of(item, pool, 5)))
""",
    "drawn for each row, without it": """
def prompt_of(item, pool, shots):
    examples = [one for one in random.sample(pool, shots + 1) if one is not item][:shots]
    return render(examples, item)

for item in rows:
    print(ask(prompt_of(item, rows, 5)))
""",
    "drawn for each row, then dropped": """
for item in rows:
    shots = random.sample(rows, 5)
    if item in shots:
        shots.remove(item)
    print(ask(shots, item))
""",
    "drawn for each row from the others": """
for item in rows:
    others = [one for one in rows if one["id"] != item["id"]]
    shots = random.sample(others, 5)
    print(ask(shots, item))
""",
    "drawn in a function that does not get the row": """
def introduction(pool):
    shots = random.sample(pool, 5)
    return render(shots)

for seed in range(100):
    print(ask(introduction(rows)))
""",
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
