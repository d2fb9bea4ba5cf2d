"""Groups of two completions under rewards of two values, and groups or rewards that tell more apart."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from truetune.checks.config.group_too_small_for_its_reward import GroupTooSmallForItsReward
from truetune.settings.stacks.read_config_of_any_stack import read_config

TWO = {
    "comprehension": "return [1.0 if c == a else 0.0 for c, a in zip(completions, answer)]",
    "cast": "return [float(c == a) for c, a in zip(completions, answer)]",
    "appended": "out = []\n    for c in completions:\n        out.append(1.0 if 'x' in c else -1.0)\n    return out",
    "by a name": "out = [int(c == a) for c, a in zip(completions, answer)]\n    return out",
}
MORE = {
    "length": "return [len(c) / 100 for c in completions]",
    "three": "return [1.0 if c == a else 0.5 if a in c else 0.0 for c, a in zip(completions, answer)]",
    "given": "return [score(c) for c in completions]",
}


def count(folder: Path, body: str, **settings: object) -> int:
    text = f"def reward(completions, answer, **kwargs):\n    {body}\n"
    (folder / "rewards.py").write_text(text, encoding="utf-8")
    given = {
        "model_name_or_path": "some/model",
        "dataset_name": "some/rows",
        "reward_funcs": ["rewards.reward"],
        "num_generations": 2,
        "max_completion_length": 256,
    }
    path = folder / "grpo.yaml"
    path.write_text(yaml.safe_dump(given | settings), encoding="utf-8")
    return len(tuple(GroupTooSmallForItsReward(read_config(path)).findings()))


@pytest.mark.parametrize("way", TWO)
def test_two_completions_under_two_values_are_reported(way: str, tmp_path: Path) -> None:
    assert count(tmp_path, TWO[way]) == 1


@pytest.mark.parametrize("way", MORE)
def test_rewards_of_more_values_are_fine(way: str, tmp_path: Path) -> None:
    assert count(tmp_path, MORE[way]) == 0


def test_larger_groups_and_unknown_rewards_are_fine(tmp_path: Path) -> None:
    assert count(tmp_path, TWO["cast"], num_generations=8) == 0
    assert count(tmp_path, TWO["cast"], reward_funcs=["other.reward"]) == 0
    assert count(tmp_path, TWO["cast"], reward_funcs=["rewards.reward", "some/model"]) == 0
