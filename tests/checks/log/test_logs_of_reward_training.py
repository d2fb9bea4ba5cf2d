"""Logs of trainings by rewards, in the words of TRL, verl, slime and open-instruct, with healthy ones beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from truetune.checks.rule_catalogue import all_rules
from truetune.logs.read_run_log import read_run
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


def _curve(*values: float, noise: float = 0.0, steps: int = 60, every: int = 1) -> dict[str, Any]:
    """A curve through these values."""
    return {
        "values": list(values) * (1 if len(values) > 1 else 2),
        "noise": noise,
        "steps": steps,
        "every": every,
    }


RISING, FLAT = _curve(0.3, 0.7, noise=0.02), _curve(0.3, 0.3, noise=0.02)
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


@pytest.mark.parametrize("curves", [HEALTHY, HEALTHY_VERL], ids=["TRL", "verl"])
def test_healthy_runs(curves: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    log = _run(tmp_path, curves)
    judged = [rule(log) for rule in BY_NAME.values()]
    found = [one.message for rule in judged for one in rule.findings()]
    assert found == []
    examined = {type(rule).name() for rule in judged if rule.unmet() is None}
    ours = {KL, HELD_OUT, CLIPPED, LIMIT, TOOLS}
    assert examined >= ours | ({FORM, DRIFT, DROPPED} if curves is HEALTHY else {PROMPTS, CRITIC})
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
