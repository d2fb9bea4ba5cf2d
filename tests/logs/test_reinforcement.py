"""Runs that learn from their own answers: dead ones are found, by what is dead in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.logs.test_rules import found, log_of

GRPO: dict[str, Any] = {
    "loss": 0.0, "grad_norm": 0.3, "learning_rate": 1e-6, "num_tokens": 9_000.0, "completions/mean_length": 181.4,
    "completions/min_length": 20.0, "completions/max_length": 256.0, "completions/clipped_ratio": 0.2,
    "completions/mean_terminated_length": 160.2, "rewards/accuracy/mean": 0.3, "rewards/accuracy/std": 0.4,
    "reward": 0.3, "reward_std": 0.4, "frac_reward_zero_std": 0.3, "kl": 0.0021, "entropy": 0.8,
    "clip_ratio/region_mean": 0.0, "epoch": 0.1,
}  # fmt: skip
"""A record as GRPOTrainer of TRL writes it (1.16)"""
DEAD_REWARD = {
    "reward": 0.0,
    "reward_std": 0.0,
    "rewards/accuracy/mean": 0.0,
    "frac_reward_zero_std": 1.0,
}
ALL_CUT = {
    "completions/mean_length": 256.0, "completions/min_length": 256.0, "completions/clipped_ratio": 1.0,
    "completions/mean_terminated_length": 0.0,
}  # fmt: skip
ONLINE_DPO: dict[str, Any] = {
    "loss": 0.69, "grad_norm": 2.0, "objective/scores": 0.3, "objective/scores_margin": 0.2, "objective/kl": 0.1,
    "val/contain_eos_token": 0.8, "logps/chosen": -80.0, "logps/rejected": -90.0, "rewards/margins": 0.01,
    "rewards/accuracies": 0.55, "beta": 0.1,
}  # fmt: skip


def run_of(
    record: dict[str, Any], count: int = 12, every: int = 1, without: tuple[str, ...] = ()
) -> dict[str, Any]:
    """What is found in a run of records like this one, with a little noise on what is not dead."""
    rng = np.random.default_rng(0)
    dead = (0.0, 1.0, 256.0)
    records = [
        {
            name: value if value in dead else float(value * (1 + 0.01 * rng.normal()))
            for name, value in record.items()
            if name not in without
        }
        | {"step": every * (i + 1)}
        for i in range(count)
    ]
    return found(log_of({"log_history": records}))


@pytest.mark.parametrize("record", [GRPO, ONLINE_DPO])
def test_healthy_runs_are_silent(record: dict[str, Any]) -> None:
    assert not run_of(record)
    assert not run_of(record, 1, 10)


@pytest.mark.parametrize(
    ("name", "mean", "records", "is_found"),
    [
        ("format_reward", 0.0, 20, True),
        ("format_reward", 0.0, 19, False),
        ("format_reward", 0.02, 20, False),
        ("length_penalty", 0.0, 20, False),
    ],
)
def test_a_function_that_gives_nothing_beside_one_that_does(
    name: str, mean: float, records: int, is_found: bool
) -> None:
    findings = run_of(GRPO | {f"rewards/{name}/mean": mean}, records)
    assert set(findings) == ({"no-reward-signal"} if is_found else set())
    if is_found:
        finding = findings["no-reward-signal"]
        assert (finding.severity, finding.count, finding.total) == ("warning", 1, 2)
        assert name in finding.message


def test_equal_rewards_are_one_finding() -> None:
    findings = run_of(GRPO | DEAD_REWARD | {"grad_norm": 0.0, "kl": 0.0})
    assert set(findings) == {"no-reward-signal"}
    finding = findings["no-reward-signal"]
    assert finding.severity == "error"
    assert (finding.count, finding.total) == (12, 12)
    assert "every gradient norm is 0 as well" in finding.evidence
    assert "rewards/accuracy/mean is 0 throughout" in finding.evidence


@pytest.mark.parametrize(
    "without",
    [
        ("frac_reward_zero_std",),
        ("frac_reward_zero_std", "grad_norm"),
        ("reward_std", "kl", "entropy"),
    ],
)
def test_equal_rewards_are_found_by_whatever_was_logged(without: tuple[str, ...]) -> None:
    assert set(run_of(GRPO | DEAD_REWARD, without=without)) == {"no-reward-signal"}


def test_a_full_reward_for_all_asks_for_harder_prompts() -> None:
    finding = run_of(GRPO | DEAD_REWARD | {"reward": 1.0})["no-reward-signal"]
    assert "harder prompts" in finding.remedy


def test_rewards_that_are_no_numbers() -> None:
    nan = float("nan")
    assert "no-reward-signal" in run_of(GRPO | {"reward": nan, "reward_std": nan})


def test_a_run_without_signal_for_most_prompts_is_a_warning() -> None:
    assert run_of(GRPO | {"frac_reward_zero_std": 0.9})["no-reward-signal"].severity == "warning"
    assert not run_of(GRPO | {"frac_reward_zero_std": 0.6})


def test_a_task_that_was_learned_had_its_signal() -> None:
    records = [
        GRPO | {"step": i, "reward": min(1.0, i / 10), "frac_reward_zero_std": min(1.0, i / 10)}
        for i in range(1, 31)
    ]
    assert not found(log_of({"log_history": records}))


def test_answers_that_are_all_cut() -> None:
    finding = run_of(GRPO | ALL_CUT)["completions-always-cut"]
    assert finding.severity == "error"
    assert "their mean length is 256 tokens" in finding.evidence
    masked = run_of(GRPO | ALL_CUT | {"grad_norm": 0.0})
    assert set(masked) == {"completions-always-cut"}
    assert "mask_truncated_completions" in masked["completions-always-cut"].evidence[-1]


@pytest.mark.parametrize(
    "without",
    [
        ("completions/clipped_ratio",),
        ("completions/clipped_ratio", "completions/mean_terminated_length"),
    ],
)
def test_cut_answers_are_found_by_whatever_was_logged(without: tuple[str, ...]) -> None:
    assert set(run_of(GRPO | ALL_CUT, without=without)) == {"completions-always-cut"}


def test_cut_answers_of_other_trainers() -> None:
    old = {"loss": 0.1, "reward": 0.2, "reward_std": 0.3, "completion_length": 256.0, "kl": 0.02}
    assert set(run_of(old)) == {"completions-always-cut"}
    assert set(run_of(ONLINE_DPO | {"val/contain_eos_token": 0.0})) == {"completions-always-cut"}
    verl = {
        "actor/pg_loss": 0.1,
        "actor/grad_norm": 0.2,
        "critic/score/mean": 0.3,
        "response_length/clip_ratio": 1.0,
    }
    assert set(run_of(verl)) == {"completions-always-cut"}


def test_no_scores_apart_of_online_dpo() -> None:
    assert set(run_of(ONLINE_DPO | {"objective/scores_margin": 0.0})) == {"no-reward-signal"}


def test_no_spread_of_advantages_of_verl() -> None:
    verl = {
        "actor/grad_norm": 0.0,
        "critic/score/mean": 0.0,
        "critic/advantages/max": 0.0,
        "critic/advantages/min": 0.0,
    }
    assert set(run_of(verl)) == {"no-reward-signal"}


def test_both_dead_are_both_found_and_the_reward_names_the_cut_first() -> None:
    findings = run_of(GRPO | DEAD_REWARD | ALL_CUT)
    assert set(findings) == {"no-reward-signal", "completions-always-cut"}
    assert "max_completion_length" in findings["no-reward-signal"].remedy


def test_most_answers_cut_is_a_warning() -> None:
    assert (
        run_of(GRPO | {"completions/clipped_ratio": 0.91})["completions-always-cut"].severity
        == "warning"
    )
    assert (
        run_of(GRPO | {"completions/clipped_ratio": 0.91}, 1, 10)["completions-always-cut"].severity
        == "warning"
    )


def test_no_gradient_though_rewards_differ() -> None:
    for loss in (0.0, 0.01):
        assert set(run_of(GRPO | {"grad_norm": 0.0, "loss": loss})) == {"grad-norm-zero"}


def test_a_distance_of_0_is_that_of_a_run_without_a_reference() -> None:
    """Public: unsloth logs `kl` as 0.0 in all records of a run with beta 0, which keeps no reference."""
    assert not run_of(GRPO | {"kl": 0.0, "loss": 0.0})


def test_rules_of_other_kinds_of_training_are_not_said_to_have_examined_it() -> None:
    from truetune.checks.rule_catalogue import all_rules
    from truetune.checks.rule_runner import run_rules

    log = log_of({"log_history": [GRPO | {"step": i} for i in range(1, 30)]})
    examined = {one.rule for one in run_rules(log, all_rules("log")).examined}
    assert {"no-reward-signal", "completions-always-cut", "grad-norm-zero"} <= examined
    assert not examined & {
        "loss-oscillates",
        "loss-spikes",
        "flat-loss",
        "eval-loss-rises",
        "dpo-chosen-falls",
    }
