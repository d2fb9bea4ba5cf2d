"""TRL's own trainers under their settings: nothing is found, and the loss is compared token by token."""

from __future__ import annotations

from typing import Any

import pytest
import trl

from tests.auditing.tiny_rollouts import grpo, length_reward, rollouts_of
from truetune.checks.judge_rollouts import judge_rollouts

pytestmark = pytest.mark.slow


def _none_for_some(completions: Any, **_: Any) -> list[float | None]:
    """A reward that is about two of three completions, and of the first two of each rollout says nothing."""
    return [None if i % 3 == 0 or i < 2 else float(i) for i, _ in enumerate(completions)]


USED_TWICE: dict[str, Any] = {"num_iterations": 2, "learning_rate": 3e-2, "max_steps": 3}
"""Settings under which the policy has moved at the second use of a rollout, and ratios are clipped"""


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="default"),
        pytest.param({"loss_type": "grpo", "beta": 0.1, **USED_TWICE}, id="grpo with a KL term, used twice"),
        pytest.param(
            {"loss_type": "bnpo", "scale_rewards": "batch", "delta": 1.5, **USED_TWICE},
            id="bnpo, spread of the batch, two-sided clipping",
        ),
        pytest.param(
            {"loss_type": "dr_grpo", "scale_rewards": "none", "gradient_accumulation_steps": 4,
             "per_device_train_batch_size": 4},
            id="dr_grpo, accumulated",
        ),
        pytest.param({"loss_type": "cispo", **USED_TWICE}, id="cispo"),
        pytest.param(
            {"importance_sampling_level": "sequence", "beta": 0.1, **USED_TWICE}, id="ratios of sequences"
        ),
        pytest.param({"gradient_accumulation_steps": 2, "steps_per_generation": 4}, id="one generation for two steps"),
        pytest.param({"mask_truncated_completions": True}, id="cut completions left out"),
        pytest.param(
            {"reward": [length_reward, _none_for_some], "reward_weights": [0.5, 2.0]}, id="two rewards, one with None"
        ),
        pytest.param({"reward": _none_for_some}, id="completions that nobody scores"),
        pytest.param({"kind": trl.RLOOTrainer}, id="RLOO with its KL penalty"),
        pytest.param({"kind": trl.RLOOTrainer, "gradient_accumulation_steps": 2, "beta": 0.0}, id="RLOO, accumulated"),
    ],
)  # fmt: skip
def test_nothing_is_found(settings: dict[str, Any]) -> None:
    report = judge_rollouts(rollouts_of(grpo(**settings)))
    assert report.findings == ()
    assert report.outcome == "no findings"
    examined = {part.rule for part in report.examined}
    assert {"loss-weighs-tokens-otherwise", "advantages-are-not-of-their-rewards"} <= examined
    assert {
        "sampled-ids-are-not-trained",
        "rollout-padding-in-loss",
        "reward-reads-other-rows",
    } <= examined
    has_old = (
        settings.get("num_iterations") == 2
        or "steps_per_generation" in settings
        or "kind" in settings
    )
    assert ("first-ratio-is-not-one" in examined) == has_old
    has_reference = (
        "beta" in settings if settings.get("kind") is None else settings.get("beta") != 0.0
    )
    assert ("rollout-reference-is-not-the-start" in examined) == has_reference
    reasons = {part.what: part.reason for part in report.not_judged}
    if not has_reference:
        assert "no KL term" in reasons["rollout-reference-is-not-the-start"]


@pytest.mark.parametrize(
    ("settings", "rule", "reason"),
    [
        ({"top_entropy_quantile": 0.5}, "loss-weighs-tokens-otherwise", "top_entropy_quantile=0.5"),
        ({"loss_type": "sapo"}, "loss-weighs-tokens-otherwise", "'sapo' is not computed here"),
        (
            {"multi_objective_aggregation": "normalize_then_sum"},
            "advantages-are-not-of-their-rewards",
            "multi_objective_aggregation",
        ),
    ],
)
def test_what_is_not_computed_is_not_judged(
    settings: dict[str, Any], rule: str, reason: str
) -> None:
    report = judge_rollouts(rollouts_of(grpo(**settings)))
    assert report.findings == ()
    assert [reason in part.reason for part in report.not_judged if part.what == rule] == [True]
