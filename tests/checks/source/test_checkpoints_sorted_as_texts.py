"""Checkpoints that are picked by the order of their names."""

from __future__ import annotations

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import parse_module

HEAD = """
import glob
import os
from pathlib import Path
"""
FAULTY = {
    "the last of a pattern": """
checkpoints = sorted(glob.glob('out/checkpoint-*'))
model = load(checkpoints[-1])
""",
    "the greatest of a pattern": """
model = load(max(Path(out).glob('checkpoint-*')))
""",
    "a list of a folder": """
names = [one for one in os.listdir(out) if one.startswith('checkpoint-')]
names = sorted(names)
model = load(names[-1])
""",
    "a pattern with a folder": """
newest = sorted(glob.glob(os.path.join(out, 'step_*')))[-1]
model = load(newest)
""",
}
RIGHT = {
    "parts of one model": """
last = load_file(sorted(glob.glob('out/model-*.safetensors'))[-1])
""",
    "a folder whose names are not known": """
run = datetime.now().strftime('%Y-%m-%d_%H-%M')
newest = sorted(os.listdir('checkpoints'))[-1]
""",
    "pairs of a number and a path": """
found = [(int(path.name.split('-')[1]), path) for path in Path(out).glob('checkpoint-*')]
step, newest = sorted(found)[-1]
""",
    "numbers that are taken out of the names": """
last = max(int(path.name.split('-')[1]) for path in Path(out).glob('checkpoint-*'))
steps = sorted(map(int, (path.name.split('-')[1] for path in Path(out).glob('checkpoint-*'))))
resume(steps[-1])
""",
    "by number": """
checkpoints = sorted(glob.glob('out/checkpoint-*'), key=number_of)
model = load(checkpoints[-1])
""",
    "by time": """
model = load(max(Path(out).glob('checkpoint-*'), key=os.path.getmtime))
""",
    "all of them": """
for path in sorted(glob.glob('out/checkpoint-*')):
    evaluate(path)
""",
    "numbers filled up with zeros": """
torch.save(state, f'out/step_{step:06d}')
files = sorted(glob.glob('out/step_*'))
state = read(files[-1])
""",
    "other files": """
files = sorted(glob.glob('data/*.jsonl'))
rows = read(files[-1])
""",
}


def findings_of(text: str) -> list[str]:
    """The messages of the rule's findings in a script."""
    module = parse_module(HEAD + text, "train.py")
    return [
        one.message for one in run_rule(module, find_rule("checkpoints-sorted-as-texts")).findings
    ]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_picked_by_text(case: str) -> None:
    """The order is named, once."""
    assert len(findings_of(FAULTY[case])) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_picked_by_number(case: str) -> None:
    """Another order, and names that are all used, are right."""
    assert findings_of(RIGHT[case]) == []
