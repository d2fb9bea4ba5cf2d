"""Policies that drift or collapse, samplers that are not the policy, and losses that are no mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.logs.test_reinforcement import GRPO, run_of
from tests.logs.test_rules import found, log_of

RECORDS = 30
PPO: dict[str, Any] = {
    "eps": 0.2, "objective/kl": 2.0, "objective/entropy": 57.0, "objective/non_score_reward": -0.1,
    "objective/rlhf_reward": 0.4, "objective/scores": 0.5, "policy/approxkl_avg": 0.002, "policy/entropy_avg": 1.9,
    "loss/policy_avg": -0.001, "loss/value_avg": 0.14, "val/ratio": 1.01, "val/num_eos_tokens": 60.0, "lr": 3e-6,
}  # fmt: skip
"""A record as PPOTrainer of TRL writes it"""


def _course(record: dict[str, Any], **courses: tuple[float, float]) -> dict[str, Any]:
    """What is found in a run whose curves go from one value to another; `__` in a name is a slash."""
    rng = np.random.default_rng(1)
    records = []
    for i in range(RECORDS):
        part = i / (RECORDS - 1)
        values = {name: float(value * (1 + 0.01 * rng.normal())) for name, value in record.items()}
        for name, (first, last) in courses.items():
            values[name.replace("__", "/")] = first + (last - first) * part
        records.append(values | {"step": i + 1})
    return found(log_of({"log_history": records}))


def test_healthy_ppo_is_silent() -> None:
    assert not _course(PPO)
    # An estimate from a few answers is a little below 0 at first.
    assert "sampled-answers-are-not-the-policys" not in _course(PPO, objective__kl=(-0.3, 4.0))


@pytest.mark.parametrize("last", [-3.0, -25.0])
def test_a_negative_kl(last: float) -> None:
    result = _course(PPO, objective__kl=(0.0, last))["sampled-answers-are-not-the-policys"]
    assert "negative" in result.message


def test_a_sampler_of_other_weights() -> None:
    name = "sampling__sampling_logp_difference__mean"
    result = _course(GRPO, **{name: (0.2, 0.22)})["sampled-answers-are-not-the-policys"]
    assert "0.21 per token" in result.message
    assert not _course(GRPO, **{name: (0.012, 0.02)})


def test_an_entropy_that_falls_to_nothing() -> None:
    assert "policy-collapses" in _course({**GRPO, "entropy": 0.8}, entropy=(0.8, -0.15))
    assert "policy-collapses" not in _course(GRPO, entropy=(0.8, 0.2))


def test_an_entropy_that_explodes() -> None:
    assert "garbage" in _course(GRPO, entropy=(0.5, 6.0))["policy-collapses"].message


def test_answers_that_shrink() -> None:
    lengths = {"completions__mean_length": (280.0, -20.0)}
    assert "shrink" in _course(GRPO, **lengths)["policy-collapses"].message
    assert "policy-collapses" not in _course(GRPO, completions__mean_length=(280.0, 90.0))


def test_a_score_that_never_changes() -> None:
    result = _course(PPO, objective__scores=(-1.0, -1.0))["no-reward-signal"]
    assert "exactly -1" in result.message


def test_answers_without_an_eos() -> None:
    assert "completions-always-cut" in _course(PPO, val__num_eos_tokens=(0.0, 0.0))


def test_tools_that_always_fail() -> None:
    assert "score-at-worst-falling-or-nan" in _course(GRPO, tools__failure_frequency=(1.0, 1.0))
    assert "score-at-worst-falling-or-nan" not in _course(GRPO, tools__failure_frequency=(1.0, 0.3))


def test_a_record_of_grpo_is_silent() -> None:
    assert not run_of(GRPO)


SFT = {"loss": 1.4, "grad_norm": 0.8, "learning_rate": 2e-5, "mean_token_accuracy": 0.66}


@pytest.mark.parametrize("parts", [16, 32])
def test_a_loss_that_is_divided_once_too_often(parts: int) -> None:
    result = _course(SFT, loss=(1.9 / parts, 1.1 / parts))
    assert "divided too often" in result["loss-below-what-accuracy-allows"].message


@pytest.mark.parametrize(
    ("loss", "accuracy"), [(0.35, 0.88), (0.02, 0.995), (1.4, 0.66), (0.6, 0.6)]
)
def test_losses_that_the_accuracy_allows(loss: float, accuracy: float) -> None:
    result = _course(SFT, loss=(loss, 0.98 * loss), mean_token_accuracy=(accuracy, accuracy))
    assert "loss-below-what-accuracy-allows" not in result
