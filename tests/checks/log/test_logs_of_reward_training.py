"""Logs of trainings by rewards, in the words of TRL, verl, slime and open-instruct, with healthy ones beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.diagnose_log import (
    COUNTER_CURVES,
    JUDGED_CURVES,
    PART_PREFIXES,
    diagnose,
)
from truetune.checks.rule_catalogue import all_rules
from truetune.checks.say_remedies_in_words_of_program import in_words_of_program
from truetune.logs.canonical_metric_names import program_of_metric_names
from truetune.logs.read_run_log import read_run
from truetune.logs.run_log import Curve
from truetune.report.rule_pages.examples_of_training_results import records_of_curves

BY_NAME = {rule.name(): rule for rule in all_rules("log")}
KL = "policy-runs-away-from-its-reference"
HELD_OUT = "reward-rises-while-evaluation-falls"
CLIPPED = "most-ratios-are-clipped"
LIMIT = "answers-grow-into-the-limit"
FORM = "only-the-format-is-learned"
PROMPTS = "training-prompts-are-cut"
TOOLS = "tool-calls-die-out"
CRITIC = "critic-explains-nothing"
DRIFT = "sampler-drifts-from-the-trainer"
DROPPED = "importance-correction-drops-answers"
DIFFERENT = "sampled-answers-are-not-the-policys"
GRADIENT = "grad-norm-explodes"
ADVANTAGES = "advantages-explode"
COLLAPSE = "policy-collapses"
PROBABILITIES = "training/rollout_probs_diff_mean"
CORRELATION = "training/rollout_actor_probs_pearson_corr"


def _curve(*values: float, noise: float = 0.0, steps: int = 60, every: int = 1) -> dict[str, Any]:
    """A curve through these values."""
    return {
        "values": list(values) * (1 if len(values) > 1 else 2),
        "noise": noise,
        "steps": steps,
        "every": every,
    }


def _leaps(usual: float, leap: float, *at: int, steps: int = 60) -> dict[str, Any]:
    """A curve at one level that leaps at these records."""
    values = [leap if step in at else usual * (1 + 0.1 * (step % 3)) for step in range(steps)]
    return {"values": values, "steps": steps}


RISING, FLAT = _curve(0.3, 0.7, noise=0.02), _curve(0.3, 0.3, noise=0.02)
FALLING, COLLAPSING = _curve(0.6, 0.1, noise=0.02), _curve(0.3, 0.8, 0.8, 0.4, noise=0.02)
HEALTHY: dict[str, dict[str, Any]] = {
    "loss": _curve(0.001, 0.003, noise=0.01),
    "reward": RISING,
    "reward_std": _curve(0.3, 0.25, noise=0.02),
    "frac_reward_zero_std": _curve(0.2, 0.35, noise=0.03),
    "kl": _curve(0.0005, 0.08, 0.12, noise=0.002),
    "entropy": _curve(0.6, 0.35, noise=0.02),
    "grad_norm": _curve(0.3, 0.25, noise=0.03),
    "clip_ratio/region_mean": _curve(0.0, 0.004, noise=0.0005),
    "completions/mean_length": _curve(320, 410, noise=15),
    "completions/clipped_ratio": _curve(0.05, 0.09, noise=0.01),
    "rewards/format_reward/mean": _curve(0.4, 0.98, noise=0.02),
    "rewards/accuracy_reward/mean": _curve(0.2, 0.5, noise=0.03),
    "tools/call_frequency": _curve(0.9, 1.4, noise=0.05),
    "sampling/sampling_logp_difference/mean": _curve(0.012, 0.015, noise=0.001),
    "sampling/importance_sampling_ratio/mean": _curve(0.98, 0.97, noise=0.01),
    "eval_reward": _curve(0.32, 0.6, noise=0.02, every=10),
}
"""A GRPO run of TRL as it should be"""
HEALTHY_PRIME_RL: dict[str, dict[str, Any]] = {
    "reward/all/mean": RISING,
    "loss/mean": _curve(0.001, -0.001, noise=0.002),
    "entropy/all/mean": _curve(0.3, 0.22, noise=0.02),
    "mismatch_kl/all/mean": _curve(0.0012, 0.004, noise=0.0003),
    "is_masked/mean": _curve(0.002, 0.003, noise=0.0005),
    "is_truncated/all/mean": _curve(0.02, 0.05, noise=0.005),
    "decode_len/all/mean": _curve(600, 900, noise=20),
    "optim/grad_norm": _curve(0.05, 0.06, noise=0.01),
    "optim/lr": _curve(1e-6, 1e-6),
    "eval/aime/avg@8": _curve(0.2, 0.4, noise=0.02, every=10),
}
HEALTHY_NEMO_RL: dict[str, dict[str, Any]] = {
    "train/reward": RISING,
    "train/loss": _curve(-0.03, 0.02, noise=0.02),
    "train/grad_norm": _curve(0.4, 0.35, noise=0.05),
    "train/lr": _curve(1e-6, 1e-6),
    "train/advantages/max": _curve(2.6, 2.6, noise=0.05),
    "train/advantages/min": _curve(-2.6, -2.6, noise=0.05),
    "train/kl_penalty": _curve(0.0, 0.02, noise=0.0005),
    "train/approx_entropy": _curve(0.5, 0.4, noise=0.02),
    "train/gen_kl_error": _curve(0.0007, 0.0008, noise=0.0001),
    "train/mean_gen_tokens_per_sample": _curve(520, 640, noise=10),
    "train/truncation_rate": _curve(0.02, 0.03, noise=0.002),
    "validation/accuracy": _curve(0.4, 0.6, noise=0.01, every=10),
}
HEALTHY_VERL: dict[str, dict[str, Any]] = {
    "critic/score/mean": RISING,
    "actor/entropy": _curve(0.5, 0.3, noise=0.02),
    "actor/kl_loss": _curve(0.0, 0.05, noise=0.002),
    "actor/pg_clipfrac": _curve(0.001, 0.004, noise=0.0005),
    "actor/grad_norm": _curve(0.2, 0.25, noise=0.03),
    "response_length/mean": _curve(800, 1400, noise=40),
    "response_length/clip_ratio": _curve(0.02, 0.12, noise=0.01),
    "prompt_length/clip_ratio": _curve(0.0, 0.0),
    "critic/vf_explained_var": _curve(-2.0, 0.2, 0.5, 0.6, noise=0.05),
    "num_turns/mean": _curve(4.0, 5.0, noise=0.1),
    PROBABILITIES: _curve(0.0035, 0.0045, noise=0.0003),
    CORRELATION: _curve(0.998, 0.997, noise=0.0005),
    "val-core/gsm8k/acc/mean@1": _curve(0.55, 0.7, noise=0.01, every=10),
}


def _run(folder: Path, curves: dict[str, dict[str, Any]]) -> Any:
    """The log of these curves."""
    state = {"log_history": records_of_curves(curves)}
    (folder / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    return read_run(folder)


@pytest.mark.parametrize(
    ("name", "curves", "expected"),
    [
        # A single token that the reference holds for impossible.
        (KL, {"kl": {"values": [0.01, 0.01, 400.0, 0.01, 0.01], "steps": 5}, "reward": FLAT}, ""),
        (KL, {"kl": _curve(0.01, 0.01, 400.0, 0.01, 0.01), "reward": FLAT}, "per token at step"),
        (KL, {"objective/kl": _curve(2.0, 20.0, noise=0.5), "reward": RISING}, ""),
        (KL, {"objective/kl": _curve(2.0, 20.0, 300.0, noise=0.5), "reward": FLAT}, "per answer"),
        (KL, {"actor/kl_loss": _curve(0.001, 0.1, 5.0), "critic/score/mean": FLAT}, "per token"),
        # It had risen before the first records, or rises at once and stays there: the reward tells.
        (KL, {"kl": _curve(0.4, 8.0, noise=0.1), "reward": FALLING}, "to 7"),
        (KL, {"kl": _curve(0.2, 6.0, 6.0, 6.0, 6.0, 6.0), "reward": FLAT}, "per token"),
        (KL, {"objective/kl": _curve(30.0, 180.0, noise=2.0), "reward": COLLAPSING}, "per answer"),
        (KL, {"train/kl_penalty": _curve(0.3, 2.5), "train/reward": COLLAPSING}, "per token"),
        (KL, {"kl": _curve(0.3, 2.0), "reward": RISING}, ""),
        (KL, {"kl": _curve(1.5, 1.6, noise=0.05), "reward": FLAT}, ""),
        (KL, {"kl": _curve(0.05, 0.8), "reward": FALLING}, ""),
        (KL, {"train/kl_penalty": _curve(0.001, 0.9), "train/reward": FLAT}, ""),
        (
            HELD_OUT,
            {
                "critic/score/mean": RISING,
                "val-core/aime/acc/mean@8": _curve(0.69, 0.7, 0.6, 0.5, every=10),
            },
            "val-core/aime/acc/mean@8 falls from 0.69",
        ),
        # Held-out scores that vary, or fall with the reward, are another matter.
        (HELD_OUT, {"reward": RISING, "eval_reward": _curve(0.5, 0.48, 0.51, 0.49, every=10)}, ""),
        (HELD_OUT, {"reward": FLAT, "eval_reward": _curve(0.5, 0.3, every=10)}, ""),
        (
            CLIPPED,
            {"critic/score/mean": FLAT, "actor/pg_clipfrac": _curve(0.5, 0.55, noise=0.02)},
            "are clipped at the end (actor/pg_clipfrac; 5",
        ),
        (CLIPPED, {"reward": RISING, "clip_ratio/region_mean": _curve(0.1, 0.15, noise=0.01)}, ""),
        (CLIPPED, {"loss/mean": FLAT, "mismatch_kl/mean": FLAT, "is_masked/mean": _curve(0.0, 0.6)}, "masked_"),
        (CLIPPED, {"reward/mean": RISING, "masked_fraction/mean": _curve(0.002, 0.02)}, ""),
        (HELD_OUT, {"reward/mean": RISING, "eval/aime/avg@8": _curve(0.5, 0.5, 0.2, every=10)}, "avg@8 falls"),
        (HELD_OUT, {"train/reward": RISING, "validation/accuracy": _curve(0.5, 0.2, every=10)}, "accuracy falls"),
        (
            HELD_OUT,
            {"critic/score/mean": RISING, "val-core/x/acc/best@8/mean": _curve(0.6, 0.3, every=10)},
            "best@8/mean falls",
        ),
        (HELD_OUT, {"reward/mean": RISING, "eval/aime/avg@8": _curve(0.2, 0.3, every=10)}, ""),
        (HELD_OUT, {"train/reward": RISING, "validation/loss": _curve(0.5, 0.2, every=10)}, ""),
        # Nearly all are cut in the end, or the reward is lost again.
        (LIMIT, {"reward": RISING, "completions/clipped_ratio": _curve(0.03, 0.95, 0.95)}, "to 9"),
        (LIMIT, {"reward": COLLAPSING, "completions/clipped_ratio": _curve(0.03, 0.5)}, "does not rise"),
        (LIMIT, {"train/reward": FLAT, "train/truncation_rate": _curve(0.03, 0.6)}, "does not rise"),
        (LIMIT, {"reward/mean": FALLING, "is_truncated/mean": _curve(0.03, 0.2)}, ""),
        (GRADIENT, {"reward": FLAT, "grad_norm": _leaps(0.4, 40.0, 12, 30, 31, 55)}, "at 4 of 60 logged steps"),
        (GRADIENT, {"train/reward": RISING, "train/grad_norm": _leaps(1.0, 90.0, 5, 20, 50)}, "jumps to 90"),
        (GRADIENT, {"reward/mean": COLLAPSING, "optim/grad_norm": _curve(0.05, 0.05, 2.5, 3.0, noise=0.01)}, "stays"),
        (GRADIENT, {"critic/score/mean": FLAT, "actor/grad_norm": _curve(0.2, 0.2, 9.0, 9.0, 9.0)}, "stays there"),
        (GRADIENT, {"reward": FLAT, "grad_norm": _leaps(0.4, 40.0, 30)}, ""),
        (GRADIENT, {"reward": FLAT, "grad_norm": _leaps(0.2, 8.0, 12, 30, 31, 55)}, ""),
        # Few groups differ: most steps have hardly a gradient.
        (GRADIENT, {"reward": FLAT, "grad_norm": _leaps(0.0, 0.5, *range(0, 60, 5))}, ""),
        (GRADIENT, {"reward": FLAT, "grad_norm": _curve(0.001, 0.001, 0.4, 0.4, 0.4)}, ""),
        (GRADIENT, {"reward": RISING, "grad_norm": _curve(0.1, 0.1, 1.6, 1.6, 1.6, noise=0.01)}, ""),
        (ADVANTAGES, {"train/reward": FLAT, "train/advantages/max": _leaps(2.6, 7400.0, 9, 40)}, "at 2 of 60"),
        (ADVANTAGES, {"critic/score/mean": FLAT, "critic/advantages/max": _leaps(1.8, 900.0, 9)}, "is 900 at"),
        (
            ADVANTAGES,
            {
                "train/reward": FLAT,
                "train/advantages/max": _leaps(2.6, 2.6),
                "train/advantages/min": _leaps(-2.6, -5e5, 9),
            },
            "is 500,000",
        ),
        (ADVANTAGES, {"reward": FLAT, "advantages/max": _curve(1e4, 1e4)}, "at 60 of 60"),
        (ADVANTAGES, {"reward/all/mean": FLAT, "advantage/all/max": _leaps(0.5, 3000.0, 9)}, "is 3,000"),
        # A group of 64, a batch with one reward, rewards that are large themselves, and a leap of half the limit.
        (ADVANTAGES, {"train/reward": FLAT, "train/advantages/max": _leaps(2.6, 7.9, 9, 40)}, ""),
        (ADVANTAGES, {"critic/score/mean": FLAT, "critic/advantages/max": _leaps(2.0, 64.0, 9)}, ""),
        (ADVANTAGES, {"reward": _curve(200.0, 400.0), "advantages/max": _curve(900.0, 900.0)}, ""),
        (ADVANTAGES, {"reward": FLAT, "advantages/max": _leaps(2.6, 50.0, 9)}, ""),
        (ADVANTAGES, {"reward": FLAT, "advantages/mean": _leaps(0.0, 500.0, 9)}, ""),
        (COLLAPSE, {"reward/mean": FLAT, "entropy/mean": _curve(0.4, 0.01, 0.001, 0.001)}, "one answer"),
        (COLLAPSE, {"train/reward": FLAT, "train/approx_entropy": _curve(0.4, 5.0, 7.0)}, "garbage"),
        (COLLAPSE, {"critic/score/mean": FALLING, "actor/entropy": _curve(0.25, 0.3, 1.5, 1.8)}, "garbage"),
        (COLLAPSE, {"critic/score/mean": FLAT, "actor/entropy": _curve(0.25, 0.3, 1.5, 1.8)}, ""),
        (COLLAPSE, {"reward/mean": FALLING, "entropy/mean": _curve(0.25, 0.9)}, ""),
        (COLLAPSE, {"train/reward": RISING, "train/approx_entropy": _curve(0.5, 0.06)}, ""),
        (COLLAPSE, {"train/reward": FLAT, "train/mean_gen_tokens_per_sample": _curve(300, 20, 5, 5)}, "shrink"),
        # Longer answers that earn more are learning to reason.
        (LIMIT, {"reward": RISING, "completions/clipped_ratio": _curve(0.05, 0.5)}, ""),
        (
            LIMIT,
            {"critic/score/mean": FLAT, "response_length/clip_ratio": _curve(0.05, 0.5)},
            "rises from",
        ),
        (
            FORM,
            {
                "reward": RISING,
                "rewards/xml_format": _curve(0.1, 0.49, noise=0.01),
                "rewards/answer_correctness": _curve(0.3, 0.2, noise=0.02),
            },
            "xml_format rises",
        ),
        # Left to `no-reward-signal`.
        (
            FORM,
            {
                "reward": RISING,
                "rewards/format_reward/mean": _curve(0.1, 0.95),
                "rewards/accuracy_reward/mean": _curve(0.0, 0.0),
            },
            "",
        ),
        # A form that was right at first, and one that hardly comes.
        (
            FORM,
            {
                "reward": FLAT,
                "rewards/format_reward/mean": _curve(0.95, 0.97),
                "rewards/accuracy_reward/mean": _curve(0.3, 0.3, noise=0.01),
            },
            "",
        ),
        (
            FORM,
            {
                "reward": FLAT,
                "rewards/format_reward/mean": _curve(0.1, 0.2),
                "rewards/accuracy_reward/mean": _curve(0.3, 0.3, noise=0.01),
            },
            "",
        ),
        (TOOLS, {"reward": RISING, "tools/call_frequency": _curve(0.0, 0.0)}, "no tool was called"),
        (TOOLS, {"critic/score/mean": RISING, "num_turns/mean": _curve(6.0, 3.0, 2.05, 2.05)}, "fall from"),
        (TOOLS, {"critic/score/mean": RISING, "num_turns/mean": _curve(2.0, 2.0)}, ""),
        (TOOLS, {"reward": RISING, "tools/call_frequency": _curve(1.4, 0.7)}, ""),
        (
            DRIFT,
            {"reward": FLAT, "train_rollout_logprob_abs_diff": _curve(0.011, 0.012, 0.036, 0.04)},
            "the updates do not reach the sampler",
        ),
        # The signature of sleep mode: the first answers come from the right weights, all others from old ones.
        (
            DRIFT,
            {
                "reward": FLAT,
                "sampling/sampling_logp_difference/mean": _curve(
                    0.012, 0.012, 0.012, 0.08, 0.08, 0.08, 0.08, 0.08, 0.08, 0.08, steps=10
                ),
            },
            "with a jump at step",
        ),
        (DRIFT, {"reward/mean": FLAT, "mismatch_kl/mean": _curve(0.001, 0.001, 0.2, 1.0)}, "grows from 0.001"),
        (DRIFT, {"loss/mean": FLAT, "mismatch_kl/mean": _curve(0.001, 0.001, 0.06, 0.09)}, "another policy"),
        (DRIFT, {"train/reward": FLAT, "train/gen_kl_error": _curve(0.0007, 0.0007, 0.05, 0.05)}, "KL of sampler"),
        (DRIFT, {"critic/score/mean": FLAT, "rollout_corr/k3_kl": _curve(0.002, 0.09)}, "KL of sampler"),
        (DRIFT, {"reward/mean": FLAT, "mismatch_kl/mean": _curve(0.0002, 0.01)}, ""),
        (DRIFT, {"train/reward": FLAT, "train/gen_kl_error": _curve(0.02, 0.05)}, ""),
        # verl's difference of probabilities: 0.005 is usual; one that was never small may be rounding.
        (DRIFT, {"critic/score/mean": FLAT, PROBABILITIES: _curve(0.004, 0.03, 0.06)}, "the probabilities"),
        (DRIFT, {"critic/score/mean": RISING, PROBABILITIES: _curve(0.003, 0.003, 0.025, 0.03)}, "by 0.003 per token"),
        (DRIFT, {"critic/score/mean": FLAT, PROBABILITIES: _curve(*[0.005] * 40, *[0.04] * 20)}, "with a jump at step"),
        (DRIFT, {"critic/score/mean": FLAT, PROBABILITIES: _curve(0.005, 0.02, 0.08)}, "do not reach the sampler"),
        (DRIFT, {"reward": FLAT, PROBABILITIES: _curve(0.006, 0.03, steps=10)}, "by 0.0"),
        (DRIFT, {"critic/score/mean": FLAT, PROBABILITIES: _curve(0.002, 0.008, noise=0.0002)}, ""),
        (DRIFT, {"critic/score/mean": FLAT, PROBABILITIES: _curve(0.03, 0.035, noise=0.001)}, ""),
        (DRIFT, {"critic/score/mean": FLAT, PROBABILITIES: _curve(0.015, 0.03, noise=0.001)}, ""),
        (DRIFT, {"critic/score/mean": FLAT, PROBABILITIES: _curve(0.004, 0.005, noise=0.001)}, ""),
        (DRIFT, {"critic/score/mean": FLAT, PROBABILITIES: _curve(0.01, 0.2)}, ""),
        (DIFFERENT, {"critic/score/mean": FLAT, PROBABILITIES: _curve(0.01, 0.2)}, "the sampler's probabilities"),
        (DIFFERENT, {"critic/score/mean": FLAT, PROBABILITIES: _curve(0.07, 0.07)}, "by 0.07 per token"),
        (DIFFERENT, {"critic/score/mean": FLAT, PROBABILITIES: _curve(0.025, 0.03, noise=0.001)}, ""),
        (DIFFERENT, {"train/reward": FLAT, "train/gen_kl_error": _curve(0.3, 0.3)}, "a KL of 0.3"),
        (DIFFERENT, {"reward/mean": RISING, "mismatch_kl/mean": _curve(0.002, 0.02)}, ""),
        (DRIFT, {"reward": FLAT, "vllm_vs_local_logprob_diff_mean": _curve(0.15, 0.5)}, ""),
        (DIFFERENT, {"reward": FLAT, "vllm_vs_local_logprob_diff_mean": _curve(0.15, 0.5)}, "by 0.3"),
        (
            DROPPED,
            {"reward": FLAT, "rollout_corr/rollout_is_mean": _curve(0.5, 0.45)},
            "info: the importance ratio is 0.4",
        ),
        (CRITIC, {"reward": FLAT, "critic/vf_explained_var": _curve(-0.5, -0.3, steps=10)}, ""),
        (
            PROMPTS,
            {"critic/score/mean": FLAT, "prompt_length/clip_ratio": _curve(0.001, 0.0)},
            "",
        ),
    ],
)  # fmt: skip
def test_faulty_runs_and_their_likes(
    name: str, curves: dict[str, dict[str, Any]], expected: str, tmp_path: Path
) -> None:
    rule = BY_NAME[name](_run(tmp_path, curves))
    found = [f"{one.severity}: {one.message}" for one in rule.findings()]
    assert [expected in message for message in found] == [True] * bool(expected), found


@pytest.mark.parametrize("curves", [HEALTHY_PRIME_RL, HEALTHY_NEMO_RL], ids=["prime-rl", "NeMo-RL"])
def test_healthy_runs_of_other_trainers(curves: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    log = _run(tmp_path, curves)
    judged = [rule(log) for rule in BY_NAME.values()]
    assert [one.message for rule in judged for one in rule.findings()] == []
    examined = {type(rule).name() for rule in judged if rule.unmet() is None}
    ours = {HELD_OUT, LIMIT, DRIFT, DIFFERENT, GRADIENT, COLLAPSE}
    own = {CLIPPED} if curves is HEALTHY_PRIME_RL else {KL, ADVANTAGES}
    assert examined >= ours | own
    assert all(rule.measurement_if_clean() for rule in judged if type(rule).name() in ours | own)


@pytest.mark.parametrize("curves", [HEALTHY, HEALTHY_VERL], ids=["TRL", "verl"])
def test_healthy_runs(curves: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    log = _run(tmp_path, curves)
    judged = [rule(log) for rule in BY_NAME.values()]
    found = [one.message for rule in judged for one in rule.findings()]
    assert found == []
    examined = {type(rule).name() for rule in judged if rule.unmet() is None}
    ours = {KL, HELD_OUT, CLIPPED, LIMIT, TOOLS, DRIFT}
    assert examined >= ours | ({FORM, DROPPED} if curves is HEALTHY else {PROMPTS, CRITIC})
    assert all(type(rule).name() not in ours or rule.measurement_if_clean() for rule in judged)


VERL_LINE = (
    "(TaskRunner pid=12) step:{step} - global_seqlen/min:2780 - actor/kl_loss:{kl:.4f} - actor/entropy:0.4 -"
    " actor/pg_clipfrac:np.float64(0.45) - actor/lr:1e-06 - critic/score/mean:{score:.3f} - critic/score/max:1.0"
    " - response_length/mean:400.5 - prompt_length/clip_ratio:0.110\n"
)


def test_the_console_of_verl(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    lines = (VERL_LINE.format(step=i, kl=0.001 * i, score=0.3 + 0.005 * i) for i in range(1, 41))
    path.write_text("INFO started\n" + "".join(lines), encoding="utf-8")
    log = read_run(path)
    assert log.kind == "reinforcement"
    assert log.curve("reward").step.size == log.curve("actor/pg_clipfrac").step.size == 40
    found = {rule.name() for rule in BY_NAME.values() for _ in rule(log).findings()}
    assert found >= {CLIPPED, PROMPTS}
    assert KL not in found


def test_the_records_of_verl(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    figures = {"critic/score/mean": 0.3, "actor/pg_clipfrac": 0.5, "response_length/mean": 400}
    lines = (json.dumps({"step": i, "data": figures}) for i in range(1, 21))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    log = read_run(path)
    assert log.curve("reward").step.tolist() == list(range(1, 21))
    assert list(BY_NAME[CLIPPED](log).findings())


def test_weights_that_grow_old_at_once(tmp_path: Path) -> None:
    name = "sampling/sampling_logp_difference/mean"
    log = _run(tmp_path, {"reward": FLAT, name: _curve(0.01, 0.01, *[0.2] * 18, steps=20)})
    assert list(BY_NAME[DRIFT](log).findings()) == []
    (found,) = BY_NAME[DIFFERENT](log).findings()
    assert any("the updates do not reach it" in one for one in found.evidence)


def test_the_correlation_that_verl_logs_is_evidence(tmp_path: Path) -> None:
    curves = {
        "critic/score/mean": FLAT,
        PROBABILITIES: _curve(0.005, 0.02, 0.08),
        CORRELATION: _curve(0.99, 0.6),
    }
    (found,) = BY_NAME[DRIFT](_run(tmp_path, curves)).findings()
    assert any("correlation of both goes from 0.9" in one for one in found.evidence)


class _AskedCurves(dict[str, Curve]):
    """Curves of a log that note which ones are asked for."""

    def __init__(self, curves: Mapping[str, Curve]) -> None:
        super().__init__(curves)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        """The curve; its name is noted."""
        self.names.add(name)
        return super().get(name, default)


@pytest.mark.parametrize("of", ["reward", "loss"])
def test_each_curve_that_a_rule_asks_for_is_known(of: str, tmp_path: Path) -> None:
    """Else the report of its finding says that no rule is about that curve."""
    log = _run(tmp_path, {of: FLAT})
    curves = _AskedCurves(log.curves)
    for rule in (rule(replace(log, curves=curves)) for rule in BY_NAME.values()):
        rule.unmet()
        list(rule.findings())
    assert {PROBABILITIES, "actor/pg_clipfrac", "reward"} <= curves.names or of == "loss"
    known = JUDGED_CURVES | COUNTER_CURVES
    assert {name for name in curves.names - known if not name.startswith(PART_PREFIXES)} == set()


DIFFERENCE = "sampling/sampling_logp_difference/mean"


@pytest.mark.parametrize(
    ("curves", "has_jump"),
    [
        ({DIFFERENCE: {"values": [0.01] * 40 + [0.06] * 20, "steps": 60}}, True),
        ({"mismatch_kl/mean": {"values": [0.002] * 150 + [0.09] * 50, "steps": 200}}, True),
        ({DIFFERENCE: _curve(0.01, 0.01, 0.05, 0.09, steps=120)}, False),
        ({DIFFERENCE: {"values": [0.01 * 1.1**step for step in range(21)], "steps": 21}}, False),
        ({PROBABILITIES: {"values": [0.004 * 1.04**step for step in range(60)], "steps": 60}}, False),
        ({"mismatch_kl/mean": _curve(*[0.001] * 3, 0.02, 0.06, 0.12, 0.2, steps=160)}, False),
        ({"train/gen_kl_error": _curve(0.0, 0.02, 0.08, steps=90)}, False),
    ],
)  # fmt: skip
def test_a_smooth_growth_is_no_jump(
    curves: dict[str, dict[str, Any]], has_jump: bool, tmp_path: Path
) -> None:
    (found,) = BY_NAME[DRIFT](_run(tmp_path, {"reward": FLAT, **curves})).findings()
    assert ("with a jump" in found.message) == has_jump


VERL_CUT = {
    "actor/pg_loss": _curve(0.001, 0.003, noise=0.01),
    "critic/score/mean": FLAT,
    "response_length/clip_ratio": _curve(0.02, 0.6, noise=0.02),
    "response_length/mean": _curve(400.0, 900.0, noise=5.0),
    "actor/grad_norm": _curve(0.2, 0.2, noise=0.01),
}
"""Answers of verl that grow into their limit while the reward stays"""


@pytest.mark.parametrize(
    ("curves", "expected"),
    [
        (VERL_CUT, "actor_rollout_ref.actor.loss_agg_mode: token-mean"),
        (
            {
                "loss": VERL_CUT["actor/pg_loss"],
                "reward": FLAT,
                "completions/clipped_ratio": VERL_CUT["response_length/clip_ratio"],
            },
            "loss_type: dapo or dr_grpo",
        ),
    ],
)
def test_help_names_settings_as_the_program_of_the_log_does(
    curves: dict[str, dict[str, Any]], expected: str, tmp_path: Path
) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in records_of_curves(curves)))
    (found,) = (one for one in diagnose(file).findings if one.rule == LIMIT)
    assert expected in found.remedy


@pytest.mark.parametrize(
    ("text", "program", "expected"),
    [
        (
            "raise max_completion_length (response_length in PPO); lower learning_rate",
            "verl",
            "raise data.max_response_length; lower actor_rollout_ref.actor.optim.lr",
        ),
        ("raise beta (the KL coefficient)", "openrlhf", "raise init_kl_coef (the KL coefficient)"),
        # Neither a part of a longer name nor a plain word.
        ("per_device_num_generations, the temperature", "verl", "per_device_num_generations, the temperature"),
        ("raise num_generations", "prime-rl", "raise orchestrator.group_size"),
    ],
)  # fmt: skip
def test_names_of_settings_are_replaced_whole(text: str, program: str, expected: str) -> None:
    assert in_words_of_program(text, program) == expected


@pytest.mark.parametrize(
    ("names", "program"),
    [
        (["actor/grad_norm", "critic/score/mean"], "verl"),
        (["mismatch_kl/mean", "reward/all/mean"], "prime-rl"),
        (["loss", "reward", "completions/mean_length", "critic_loss"], ""),
    ],
)
def test_names_of_quantities_tell_the_program(names: list[str], program: str) -> None:
    assert program_of_metric_names(names) == program
