"""Roles that a training script gives the wrong way round, and what only looks so."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.checks.lint import lint

TRAIN = "from trl import SFTTrainer\n{}\nSFTTrainer('some/base', train_dataset=rows).train()\n"


def count(folder: Path, code: str) -> int:
    """How often the rule speaks of a training script that holds this code."""
    path = folder / "train.py"
    path.write_text(TRAIN.format(code), encoding="utf-8")
    return len(lint([str(path)], select=["roles-exchanged-in-code"]).findings)


@pytest.mark.parametrize(
    "code",
    [
        "roles = {'human': 'assistant', 'gpt': 'user'}",
        "role = 'assistant' if turn['from'] == 'human' else 'user'",
        "role = 'user' if turn['from'] == 'gpt' else 'assistant'",
        (
            "rows = [[{'role': 'assistant', 'content': r['question']}, {'role': 'user', 'content': r['answer']}]"
            " for r in raw]"
        ),
    ],
)
def test_exchanged_roles_are_found(code: str, tmp_path: Path) -> None:
    assert count(tmp_path, code) == 1


@pytest.mark.parametrize(
    "code",
    [
        "roles = {'human': 'user', 'gpt': 'assistant'}",
        "roles = {'user': 'assistant', 'assistant': 'user'}",  # two models talk
        "role = 'user' if turn['from'] == 'human' else 'assistant'",
        "role = 'assistant' if last == 'user' else 'user'",
        "names = {'user': 'Customer', 'assistant': 'Agent'}",
        "said = [{'role': 'assistant', 'content': greeting}, {'role': 'user', 'content': question}]",
        "said = [{'role': 'user', 'content': r['question']}, {'role': 'assistant', 'content': r['answer']}]",
    ],
)
def test_other_roles_are_left_alone(code: str, tmp_path: Path) -> None:
    assert count(tmp_path, code) == 0
