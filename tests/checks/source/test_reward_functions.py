"""Reward functions that take references by position, or messages for text; and sound ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.lint import lint

CHATS = [
    {"prompt": [{"role": "user", "content": f"{n} + {n}?"}], "answer": str(2 * n)} for n in range(9)
]
TEXTS = [{"prompt": f"{n} + {n}?", "answer": str(2 * n)} for n in range(9)]
FILE = 'import json, re\nGOLD = [json.loads(line)["answer"] for line in open("rows.jsonl")]\n'


def codes(folder: Path, script: str, rows: list[dict[str, Any]]) -> set[str]:
    """What the rules on reward functions say of a script beside its rows."""
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "rewards.py").write_text(FILE + script, encoding="utf-8")
    report = lint([str(folder / "rewards.py")])
    return {one.code for one in report.findings} & {"SRC274", "SRC275"}


BY_POSITION = (
    "def f(completions, **kwargs):\n"
    '    return [float(c[0]["content"] == GOLD[i]) for i, c in enumerate(completions)]',
    "def f(completions, **kw):\n    out = []\n    for i in range(len(completions)):\n"
    '        out.append(float(completions[i][0]["content"] == GOLD[i]))\n    return out',
    'def f(completions, **kw):\n    return [float(g in c[0]["content"]) for c, g in zip(completions, GOLD)]',
    "def f(prompts, completions, **kw):\n    for n, c in enumerate(completions):\n        gold = GOLD[n]\n"
    "    return []",
    "class R:\n    def g(self, completions, **kw):\n"
    '        return [c[0]["content"] == GOLD[k] for k, c in enumerate(completions)]',
)
BY_COLUMN = (
    "SCORES = [0.0] * 64\ndef f(completions, **kw):\n    for i, c in enumerate(completions):\n"
    "        SCORES[i] = float(len(c))\n    return SCORES[: len(completions)]",
    "def f(completions, answer, **kw):\n"
    '    return [float(c[0]["content"] == answer[i]) for i, c in enumerate(completions)]',
    'def f(completions, answer, **kw):\n    return [float(g in c[0]["content"]) for c, g in zip(completions, answer)]',
    "def f(completions, row, **kw):\n    return [float(c[0]['content'] == GOLD[n]) for c, n in zip(completions, row)]",
    "def f(completions, **kw):\n    GOLD = kw['answer']\n"
    "    return [c[0]['content'] == GOLD[i] for i, c in enumerate(completions)]",
    "def accuracy(completions):\n    return sum(c == GOLD[i] for i, c in enumerate(completions))",
)


@pytest.mark.parametrize("script", BY_POSITION)
def test_references_by_position(tmp_path: Path, script: str) -> None:
    assert codes(tmp_path, script, CHATS) == {"SRC274"}


@pytest.mark.parametrize("script", BY_COLUMN)
def test_references_by_column(tmp_path: Path, script: str) -> None:
    assert codes(tmp_path, script, CHATS) == set()


FIRST_OF_COLUMN = (
    "def f(completions, answer, **kw):\n    target = answer[0]\n"
    "    texts = [c[0]['content'] for c in completions]\n    return [2.0 if t == target else 0.0 for t in texts]",
    "def f(prompts, completions, answer, **kw):\n    out = []\n    for c in completions:\n"
    "        text = c[0]['content'].strip()\n        out.append(score(text, answer[0]))\n    return out",
    "def f(completions, solution, **kw):\n    gold = float(solution[0])\n"
    "    return [float(abs(float(c[0]['content']) - gold) < 1) for c in completions]",
    "def f(completions, answer, **kw):\n    guesses = [read(c) for c in completions]\n    out = []\n"
    "    for i in range(len(completions)):\n        out.append(float(guesses[i] == answer[0]))\n    return out",
    "def f(prompts, completions, **kw):\n    question = prompts[0][-1]['content']\n"
    "    return [judge(question, c[0]['content']) for c in completions]",
)
FIRST_OF_COLUMN_ELSEWHERE = (
    "def f(completions, answer, **kw):\n    print(answer[0], completions[0])\n"
    "    return [float(c[0]['content'] == a) for c, a in zip(completions, answer)]",
    "def f(completions, answer, **kw):\n    out = []\n    for c, a in zip(completions, answer):\n"
    "        print(f'{c} {answer[0]}')\n        out.append(float(c[0]['content'] == a))\n    return out",
    "def f(completions, answer, **kw):\n"
    "    return [float(c[0]['content'] == answer[0]) for c, answer in zip(completions, answer)]",
    "def f(completions, task, **kw):\n    if task[0] != 'math':\n        return [0.0] * len(completions)\n"
    "    return [float('=' in c[0]['content']) for c in completions]",
    "def f(prompts, completions, answer, **kw):\n    is_chat = isinstance(prompts[0], list)\n"
    "    return [score(text_of(c, is_chat), a) for c, a in zip(completions, answer)]",
    "def f(completions, answer, **kw):\n    is_number = type(answer[0]) is float\n"
    "    return [compare(c, a, is_number) for c, a in zip(completions, answer)]",
    "def f(completions, answer, **kw):\n    if len(answer) == 1:\n"
    "        return [float(c == answer[0]) for c in completions]\n"
    "    return [float(c == a) for c, a in zip(completions, answer)]",
    "from trl import GRPOConfig\n"
    "c = GRPOConfig(per_device_train_batch_size=4, gradient_accumulation_steps=2, num_generations=8)\n"
    "def f(completions, answer, **kw):\n    return [float(c[0]['content'] == answer[0]) for c in completions]",
)


@pytest.mark.parametrize("script", FIRST_OF_COLUMN)
def test_first_of_column_for_all_completions(tmp_path: Path, script: str) -> None:
    assert codes(tmp_path, script, CHATS) == {"SRC274"}


@pytest.mark.parametrize("script", FIRST_OF_COLUMN_ELSEWHERE)
def test_first_of_column_elsewhere(tmp_path: Path, script: str) -> None:
    assert codes(tmp_path, script, CHATS) == set()


AS_TEXT = (
    "def f(completions, **kw):\n    return [float(c.strip() == '4') for c in completions]",
    "def f(completions, answer, **kw):\n"
    "    return [float(c.split('####')[-1] == a) for c, a in zip(completions, answer)]",
    "def f(completions, **kw):\n    return [1.0 if re.search('<answer>', c) else 0.0 for c in completions]",
    "def f(prompts, completions, answer, **kw):\n    out = []\n    for p, c, a in zip(prompts, completions, answer):\n"
    "        try:\n            out.append(float(c.lower().endswith(a)))\n"
    "        except Exception:\n            out.append(0.0)\n"
    "    return out",
    "def f(completions, **kw):\n    return [float(c.startswith('I')) for i, c in enumerate(completions)]",
)
AS_MESSAGES = (
    "def f(completions, **kw):\n    return [float(c[0]['content'].strip() == '4') for c in completions]",
    "def f(completions, **kw):\n    texts = [c[0]['content'] for c in completions]\n"
    "    return [float(c.strip() == '4') for c in texts]",
    "def f(completions, **kw):\n"
    "    return [float((c if isinstance(c, str) else c[0]['content']) == '4') for c in completions]",
    "def text_of(c):\n    return c[-1]['content']\ndef f(completions, **kw):\n    out = []\n    for c in completions:\n"
    "        c = text_of(c)\n        out.append(float(c.strip() == '4'))\n    return out",
    "def f(completions, **kw):\n    return [float(len(c)) for c in completions]",
)


@pytest.mark.parametrize("script", AS_TEXT)
def test_messages_as_text(tmp_path: Path, script: str) -> None:
    assert codes(tmp_path, script, CHATS) == {"SRC275"}
    assert codes(tmp_path, script, TEXTS) == set()


@pytest.mark.parametrize("script", AS_MESSAGES)
def test_messages_as_messages(tmp_path: Path, script: str) -> None:
    assert codes(tmp_path, script, CHATS) == set()


READS_TEXT = 'def f(completions, answer, **k):\n    return [c.split("#")[-1] == a for c, a in zip(completions, answer)]'
MAKES_MESSAGES = 'ds = ds.map(lambda r: {"prompt": [{"role": "user", "content": r["question"]}]})\n'
MAKES_TEXT = (
    'ds = ds.map(lambda r: {"prompt": tok.apply_chat_template(r["turns"], tokenize=False)})\n'
)


@pytest.mark.parametrize(
    ("maps", "expected"),
    [
        (MAKES_MESSAGES, {"SRC275"}),
        (MAKES_TEXT, set()),
        (MAKES_MESSAGES + MAKES_TEXT, set()),
        (MAKES_MESSAGES.replace("[{", "messages(r) or [{"), set()),
    ],
)
def test_prompts_that_the_script_makes(tmp_path: Path, maps: str, expected: set[str]) -> None:
    rows = [{"question": "1 + 1?", "answer": "2"}]
    assert codes(tmp_path, maps + READS_TEXT, rows) == expected
