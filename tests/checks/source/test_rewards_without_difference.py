"""Reward functions that tell the completions of a prompt apart, or don't."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.rule_catalogue import find_rule
from truetune.checks.rule_runner import run_rule
from truetune.source.parsed_source_file import read_module

SCRIPT = """
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer
rows = load_dataset("json", data_files="train.jsonl", split="train")
{function}
args = GRPOConfig(output_dir="out", num_generations=8)
trainer = GRPOTrainer("model", reward_funcs=[score], args=args, train_dataset=rows)
trainer.train()
"""
FAULTY = {
    "a constant": "def score(completions, **kwargs):\n    return [0.0 for _ in completions]",
    "of the prompt": "def score(prompts, completions, **kwargs):\n    return [1 / len(one) for one in prompts]",
    "of the number of completions": (
        "def score(completions):\n    print(completions[0])\n    return [1 / len(completions)] * len(completions)"
    ),
    "one reward for all": (
        "def score(completions, answer, **kwargs):\n"
        "    right = [one == two for one, two in zip(completions, answer)]\n    return [sum(right) / len(right)]"
    ),
    "a reference under another name": (
        "def score(completions, ground_truth=None, **kwargs):\n"
        "    wanted = ground_truth or [''] * len(completions)\n"
        "    return [float(one == two) for one, two in zip(completions, wanted)]"
    ),
}
RIGHT = {
    "of the completion": (
        "def score(completions, answer, **kwargs):\n"
        "    return [float(one == two) for one, two in zip(completions, answer)]"
    ),
    "of its ids": "def score(completions, completion_ids, **kwargs):\n    return [-len(one) for one in completion_ids]",
    "of what the trainer gives": (
        "def score(completions, trainer_state=None, **kwargs):\n"
        "    scale = trainer_state.global_step if trainer_state else 1\n"
        "    return [scale * len(one) for one in completions]"
    ),
    "of an environment": (
        "def score(completions, environments, **kwargs):\n    return [one.reward for one in environments]"
    ),
    "nothing to say": "def score(completions, **kwargs):\n    return [None] * len(completions)",
    "through a function": "def score(completions, **kwargs):\n    return judge(completions)",
    "a setting with a default": (
        "def score(completions, weight=0.5, **kwargs):\n    return [weight * len(one) for one in completions]"
    ),
}


def findings_of(function: str, folder: Path) -> list[str]:
    """The messages of the rule's findings in a script beside its rows."""
    rows = [{"prompt": f"{n} + {n}?", "answer": str(2 * n)} for n in range(8)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "train.py").write_text(SCRIPT.format(function=function))
    module = read_module(folder / "train.py")
    rule = find_rule("reward-tells-nothing-apart")
    return [one.message for one in run_rule(module, rule).findings]


@pytest.mark.parametrize("case", sorted(FAULTY))
def test_tells_nothing_apart(case: str, tmp_path: Path) -> None:
    """The function is named, once."""
    assert len(findings_of(FAULTY[case], tmp_path)) == 1


@pytest.mark.parametrize("case", sorted(RIGHT))
def test_tells_completions_apart(case: str, tmp_path: Path) -> None:
    """A function that reads its completions, or an environment, is right."""
    assert findings_of(RIGHT[case], tmp_path) == []
