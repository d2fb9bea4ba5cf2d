"""Blocks that are a reward function and the rows that it is tried on: YAML with `reward` and `rows`.

The function is really called, in its confined process.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import yaml

from truetune.checks.findings import Finding
from truetune.checks.rule import Rule
from truetune.generation.reward_trial import RewardTrial
from truetune.rewards.reward_process import RewardTarget
from truetune.rewards.rows_for_rewards import read_reward_rows
from truetune.rewards.trial_in_progress import TrialOptions
from truetune.rewards.try_reward_function import try_reward_function

LIMIT_SECONDS = 1.0
"""That a call may take here: a pattern that hangs is known as well after a second"""


def findings(rule: type[Rule[Any]], text: str, folder: Path) -> tuple[Finding, ...]:
    """Look at what a block describes with this rule alone."""
    return tuple(rule(tried(yaml.safe_load(text), folder)).findings())


def tried(example: dict[str, Any], folder: Path | None = None) -> RewardTrial:
    """The trial of a block's function."""
    if folder is None:
        with tempfile.TemporaryDirectory() as name:
            return tried(example, Path(name))
    (folder / "rewards.py").write_text(example["reward"], encoding="utf-8")
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in example["rows"]), encoding="utf-8")
    # The name of the function: that of the last definition in it.
    name = example["reward"].rpartition("def ")[2].partition("(")[0]
    target = RewardTarget(str(folder / "rewards.py"), name)
    options = TrialOptions(seconds=LIMIT_SECONDS)
    return try_reward_function(target, read_reward_rows([str(rows)], 20).rows, options)
