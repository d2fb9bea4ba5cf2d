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


MEASURED = {
    "length": "    return [-abs(50 - len(one)) for one in completions]",
    "length beside the prompt": "    return [len(c) / len(p) for p, c in zip(prompts, completions)]",
    "length by map": "    return [n / 100 for n in map(len, completions)]",
    "length by position": "    return [float(len(completions[i]) > 9) for i in range(len(completions))]",
    "length in a counted loop": (
        "    out = []\n    for i, (p, c) in enumerate(zip(prompts, completions)):\n"
        "        print(c)\n        out.append(-len(c))\n    return out"
    ),
    "length by a function": "    return [near(one) for one in completions]",
    "keys of the message": "    return [min(len(one[0]), 100) for one in completions]",
    "a text in the list": "    return [1.0 if '<answer>' in one else 0.0 for one in completions]",
    "a count in the list": "    return [-one.count('wait') for one in completions]",
    "emptiness": "    return [0.0 if not one else 1.0 for one in completions]",
}
READ = {
    "text": "    return [-abs(50 - len(one[0]['content'])) for one in completions]",
    "text first": "    texts = [one[-1]['content'] for one in completions]\n    return [len(t) for t in texts]",
    "its form asked": "    return [len(one if isinstance(one, str) else str(one)) for one in completions]",
    "its form as text": "    return [len(str(one)) for one in completions]",
    "ids": "    return [-len(ids) + 0 * len(one) for one, ids in zip(completions, completion_ids)]",
    "other columns": "    return [len(c) + len(i) for c, i in zip(completions, kwargs['completion_ids'])]",
    "a function that is not shown": "    return [judge(one) for one in completions]",
    "length beside a text": "    return [len(c) + ('4' in c[0]['content']) for c in completions]",
    "a function that reads the text": "    return [read(one) for one in completions]",
}
HELPERS = """
def near(answer, target=50):
    return -abs(target - len(answer))
def read(answer):
    return len(answer) + len(answer[0]["content"])
def score(completions, prompts, completion_ids, **kwargs):
"""


def findings_on_chats(function: str, folder: Path, *, are_chats: bool = True) -> list[str]:
    """The messages of the rule's findings in a script beside rows with chat prompts."""
    prompts = [f"{n} + {n}?" for n in range(8)]
    rows = [{"prompt": [{"role": "user", "content": one}] if are_chats else one} for one in prompts]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "train.py").write_text(SCRIPT.format(function=function))
    module = read_module(folder / "train.py")
    judged = run_rule(module, find_rule("reward-tells-nothing-apart"))
    return [one.message for one in judged.findings]


@pytest.mark.parametrize("case", sorted(MEASURED))
def test_list_of_messages_is_measured(case: str, tmp_path: Path) -> None:
    """A measure of the list is the same for all completions of a chat, and right for texts."""
    function = HELPERS + MEASURED[case]
    assert [one.split(":")[0] for one in findings_on_chats(function, tmp_path)] == [
        "score measures a list and no text"
    ]
    assert findings_on_chats(function, tmp_path, are_chats=False) == []


@pytest.mark.parametrize("case", sorted(READ))
def test_message_is_read(case: str, tmp_path: Path) -> None:
    """A function that reads the message, or may read it, is right."""
    assert findings_on_chats(HELPERS + READ[case], tmp_path) == []


@pytest.mark.parametrize(
    "changed",
    [
        "rows = rows.map(lambda r: {'prompt': template(r['prompt'])})\n",
        "for r in rows:\n    r['prompt'] = template(r['prompt'])\n",
        "tools = [search]\n",
    ],
)
def test_prompts_are_replaced_or_answers_have_turns(changed: str, tmp_path: Path) -> None:
    """Prompts that the script makes texts, and completions of several messages, are not judged by the file."""
    function = changed + HELPERS + MEASURED["length"]
    assert findings_on_chats(function, tmp_path) == []
