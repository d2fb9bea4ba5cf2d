"""The functions of docs/rollouts.md that fill the record from other stacks, on tensors laid out as these stacks do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import truetune
from truetune import RolloutSettings

PAGE = Path(__file__).parents[3] / "docs" / "rollouts.md"
STOP = 9
PROMPTS = [[1, 2, 3], [1, 2, 3], [4, 5], [4, 5]]
ANSWERS = [[6, 7, STOP], [7, STOP], [8, 6, 7, STOP], [8, STOP]]
REWARDS = [1.0, 0.0, 0.02, 0.03]
GROUPS = ["b", "b", "a", "a"]
SETTINGS = RolloutSettings(num_generations=2, trainer_stops=(STOP,), sampler_stops=(STOP,))


def functions() -> dict[str, Any]:
    """The names of the block that defines `step_of_rows`."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (code,) = [block for block in blocks if "def step_of_rows" in block]
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def grpo(rewards: Sequence[float], floor: float) -> list[float]:
    """Advantages of groups of two, as verl and SkyRL compute them."""
    grouped = np.array(rewards).reshape(-1, 2)
    spread = grouped.std(axis=1, ddof=1, keepdims=True) + floor
    return [float(value) for value in ((grouped - grouped.mean(1, keepdims=True)) / spread).ravel()]


def left(rows: list[list[Any]], width: int) -> torch.Tensor:
    return torch.tensor([[0] * (width - len(row)) + row for row in rows])


def right(rows: list[list[Any]], width: int) -> torch.Tensor:
    return torch.tensor([row + [0] * (width - len(row)) for row in rows])


def ones(rows: list[list[Any]], value: Any = 1) -> list[list[Any]]:
    return [[value] * len(row) for row in rows]


def masks(stop_in_loss: bool) -> list[list[int]]:
    return [[int(stop_in_loss or token != STOP) for token in row] for row in ANSWERS]


def spread_over(values: Sequence[float]) -> list[list[float]]:
    return [[value] * len(row) for value, row in zip(values, ANSWERS, strict=True)]


def at_end(values: Sequence[float]) -> list[list[float]]:
    return [[0.0] * (len(row) - 1) + [value] for value, row in zip(values, ANSWERS, strict=True)]


def verl(stop_in_loss: bool, sign: int) -> Any:
    advantages = [sign * one for one in grpo(REWARDS, 1e-6)]
    batch = {
        "prompts": left(PROMPTS, 5),
        "responses": right(ANSWERS, 6),
        "attention_mask": torch.cat([left(ones(PROMPTS), 5), right(ones(ANSWERS), 6)], dim=1),
        "response_mask": right(masks(stop_in_loss), 6),
        "token_level_rewards": right(at_end(REWARDS), 6),
        "advantages": right(spread_over(advantages), 6),
    }
    # `balance_batch` changes the order of the rows.
    order = torch.tensor([2, 0, 3, 1])
    return SimpleNamespace(
        batch={name: value[order] for name, value in batch.items()},
        non_tensor_batch={"uid": np.array(GROUPS, dtype=object)[order.numpy()]},
    )


def openrlhf(stop_in_loss: bool, sign: int) -> Any:
    advantages = [sign * one for one in grpo(REWARDS, 1e-9)]
    whole = [prompt + answer for prompt, answer in zip(PROMPTS, ANSWERS, strict=True)]
    before = [[0] * (len(prompt) - 1) for prompt in PROMPTS]
    mask = [a + b for a, b in zip(before, masks(stop_in_loss), strict=True)]
    values = [a + b for a, b in zip(before, spread_over(advantages), strict=True)]
    return [
        SimpleNamespace(
            index=list(rows),
            sequences=right([whole[row] for row in rows], 8),
            attention_mask=right(ones([whole[row] for row in rows]), 8),
            action_mask=right([mask[row] for row in rows], 7),
            advantages=right([values[row] for row in rows], 7),
            rewards=torch.tensor([REWARDS[row] for row in rows]),
        )
        for rows in ((2, 0), (1, 3))
    ]


class SkyRLBatch(dict[str, torch.Tensor]):
    metadata: dict[str, Any]


def skyrl(stop_in_loss: bool, sign: int) -> Any:
    advantages = [sign * one for one in grpo(REWARDS, 1e-6)]
    whole = [prompt + answer for prompt, answer in zip(PROMPTS, ANSWERS, strict=True)]
    batch = SkyRLBatch(
        sequences=left(whole, 6),
        attention_mask=left(ones(whole), 6),
        response_mask=left(ones(ANSWERS), 4),
        loss_mask=left(masks(stop_in_loss), 4),
        rewards=left(at_end(REWARDS), 4),
        advantages=left(spread_over(advantages), 4),
    )
    batch.metadata = {"uids": GROUPS}
    return batch


def prime_rl(stop_in_loss: bool, sign: int) -> Any:
    grouped = np.array(REWARDS).reshape(-1, 2)
    advantages = (sign * (grouped - grouped.mean(1, keepdims=True))).ravel()
    samples = []
    for row, (prompt, answer) in enumerate(zip(PROMPTS, ANSWERS, strict=True)):
        trace = SimpleNamespace(
            reward=REWARDS[row], task=SimpleNamespace(data=SimpleNamespace(idx=GROUPS[row]))
        )
        mask = [False] * len(prompt) + [bool(one) for one in masks(stop_in_loss)[row]]
        sample = SimpleNamespace(
            token_ids=prompt + answer,
            mask=mask,
            advantages=[0.0] * len(prompt) + [float(advantages[row])] * len(answer),
        )
        samples.append((trace, [sample]))
    return samples


STACKS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "verl": (verl, (), {}),
    "openrlhf": (openrlhf, (2,), {}),
    "skyrl": (skyrl, (), {}),
    "prime_rl": (prime_rl, (), {"scale_rewards": "none"}),
}


def codes(stack: str, *, stop_in_loss: bool = True, sign: int = 1) -> list[str]:
    make, more, settings = STACKS[stack]
    names = functions()
    rows = names[f"rows_of_{stack}"](make(stop_in_loss, sign), *more)
    own = RolloutSettings(**{**vars(SETTINGS), **settings})
    report = truetune.audit_rollout(names["step_of_rows"](rows, own))
    judged = {part.rule for part in report.examined} | {one.rule for one in report.findings}
    assert {"advantages-are-not-of-their-rewards", "sampled-tokens-left-out-of-loss"} <= judged
    return sorted(finding.code for finding in report.findings)


@pytest.mark.parametrize("stack", STACKS)
def test_a_sound_rollout_has_no_finding_and_broken_ones_have_theirs(stack: str) -> None:
    assert codes(stack) == []
    assert codes(stack, sign=-1) == ["ROL011"]
    assert codes(stack, stop_in_loss=False) == ["ROL004"]
