"""Logs whose curves are terrible in ways that no loss shows: what a page draws must not stand beside "no findings"."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import truetune
from tests.logs.test_rules import log_of
from truetune.checks.diagnose_log import JUDGED_CURVES, diagnose
from truetune.checks.rule import LogRule
from truetune.checks.rule_catalogue import all_rules
from truetune.checks.rule_runner import run_rules

STEPS = 60
NOISE = np.random.default_rng(0).normal(0, 0.02, STEPS + 1)
Record = dict[str, float]


def run(of: Callable[[int], Record], **facts: object) -> set[str]:
    """Rules that find something in a log of such records."""
    made = log_of({"log_history": [{"step": i, **of(i)} for i in range(1, STEPS + 1)], **facts})
    judged = run_rules(made, all_rules("log"))
    assert not [part for part in judged.not_judged if part.place], "a rule failed"
    return {finding.rule for finding in judged.findings}


def sft(i: int) -> Record:
    """A healthy step."""
    rate = 1e-5 * (1 - i / (STEPS + 2))
    return {
        "loss": 2 - i / 100 + NOISE[i],
        "learning_rate": rate,
        "grad_norm": 1.0,
        "epoch": i / STEPS,
    }


def grpo(i: int) -> Record:
    return {
        "loss": 0.01,
        "reward": 0.3 + NOISE[i],
        "reward_std": 0.2,
        "learning_rate": 1e-6,
        "grad_norm": 0.1,
    }


def dpo(i: int) -> Record:
    pairs = {"rewards/accuracies": 0.6, "logps/chosen": -100.0, "logps/rejected": -101.0}
    return {
        "loss": 0.6 - i / 1000,
        "rewards/margins": i / 100,
        "learning_rate": 1e-6,
        "grad_norm": 1.0,
        **pairs,
    }


@pytest.mark.parametrize(
    ("of", "rule"),
    [
        (lambda i: sft(i) | {"mean_token_accuracy": 0.0}, "score-at-worst-falling-or-nan"),
        (
            lambda i: sft(i) | ({"eval_f1": 0.0} if i % 20 == 0 else {}),
            "score-at-worst-falling-or-nan",
        ),
        (lambda i: sft(i) | {"mean_token_accuracy": math.nan}, "score-at-worst-falling-or-nan"),
        (lambda i: sft(i) | {"grad_norm": math.nan}, "grad-norm-explodes"),
        (lambda i: grpo(i) | {"learning_rate": 0.0}, "learning-rate-ended-early"),
        (lambda i: dpo(i) | {"learning_rate": 0.0}, "learning-rate-ended-early"),
        (lambda i: grpo(i) | {"reward": 0.8 - 0.8 * i / STEPS}, "score-at-worst-falling-or-nan"),
        (
            lambda i: grpo(i) | {"reward": math.nan if i % 10 else 0.2},
            "score-at-worst-falling-or-nan",
        ),
        (lambda i: dpo(i) | {"rewards/accuracies": 0.1}, "score-at-worst-falling-or-nan"),
        (
            lambda i: {"loss": 0.01, "reward": 0.3 + NOISE[i], "grad_norm": 0.0 if i % 6 else 0.1},
            "grad-norm-zero",
        ),
    ],
)
def test_a_terrible_figure_is_a_finding(of: Callable[[int], Record], rule: str) -> None:
    assert rule in run(of)


NAMED = re.compile(r'(?:curve|records|_is_curve_all_zero)\("([a-z_/]+)"\)')


def test_curves_that_no_rule_reads_are_named(tmp_path: Path) -> None:
    records = [
        {"step": i, **sft(i), "policy_lag": math.exp(i / 6), "router_noise": 0.0}
        for i in range(1, STEPS + 1)
    ]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": records}))
    (told,) = (part for part in diagnose(tmp_path).not_judged if part.what.startswith("curves"))
    assert told.what == "curves: policy_lag, router_noise"


def test_the_curves_that_rules_read_are_known() -> None:
    """A rule that reads another curve must enter it, else a page says that no rule is about it."""
    root = Path(truetune.__file__).parent
    files = [
        *(root / "checks" / "log").rglob("*.py"),
        root / "logs" / "grpo_learning_signal_and_cut_answers.py",
        root / "logs" / "detect_resumes_without_state.py",
    ]
    named = {name for file in files for name in NAMED.findall(file.read_text(encoding="utf-8"))}
    rules = [rule for rule in all_rules("log") if issubclass(rule, LogRule)]
    needed = {name for rule in rules for name in rule.needs}
    assert rules
    assert len(named) > 10
    assert named | needed <= JUDGED_CURVES


@pytest.mark.parametrize("of", [sft, grpo, dpo])
def test_its_healthy_twin_is_silent(of: Callable[[int], Record]) -> None:
    assert run(of) == set()


@pytest.mark.parametrize(
    ("planned", "severity"), [(STEPS, "warning"), (0, "info"), (10 * STEPS, None)]
)
def test_a_loss_that_ends_at_guessing(planned: int, severity: str | None) -> None:
    records = [{"step": i, **sft(i), "loss": 10.8 + NOISE[i]} for i in range(1, STEPS + 1)]
    log = log_of({"log_history": records, **({"max_steps": planned} if planned else {})})
    log.facts["vocab_size"] = 50_257  # type: ignore[index]
    found = {
        finding.rule: finding.severity for finding in run_rules(log, all_rules("log")).findings
    }
    assert found.get("first-loss-above-guessing") == severity
