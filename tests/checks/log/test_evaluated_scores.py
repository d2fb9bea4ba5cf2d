"""Scores of evaluations that stand still or get worse, and learning rates that leave their schedule."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from truetune.checks.diagnose_log import diagnose

Score = Callable[[int], float]


def state_file(folder: Path, name: str, score: Score, *, eval_loss: Score | None = None) -> Path:
    """A trainer's state of 60 records, and after each tenth an evaluation with this score."""
    records: list[dict[str, float]] = []
    for n in range(1, 61):
        loss = 1.1 + math.exp(-n / 12) + 0.02 * math.sin(3 * n)
        records.append(
            {"step": 10 * n, "loss": loss, "epoch": n / 20, "learning_rate": 1e-5 * (61 - n) / 60}
        )
        if n % 10 == 0:
            evaluation = {"step": 10 * n, "epoch": n / 20, name: score(n // 10)}
            if eval_loss is not None:
                evaluation["eval_loss"] = eval_loss(n // 10)
            records.append(evaluation)
    file = folder / "trainer_state.json"
    file.write_text(
        json.dumps({"log_history": records, "max_steps": 600, "global_step": 600}), encoding="utf-8"
    )
    return file


def rules_of(file: Path) -> dict[str, str]:
    """Severity by rule of what a log shows."""
    return {one.rule: one.severity for one in diagnose(file).findings}


@pytest.mark.parametrize(
    ("name", "score", "is_found"),
    [
        ("eval_accuracy", lambda n: 0.7312, True),
        ("eval_f1", lambda n: 0.4223, True),
        ("eval_bleu", lambda n: 12.345, True),
        ("val_acc", lambda n: 0.684211, True),
        ("val-core/openai/gsm8k/reward/mean@1", lambda n: 0.312358, True),
        # Few rows give few values.
        ("eval_accuracy", lambda n: 0.75, False),
        ("eval_accuracy", lambda n: 1.0, False),
        # One evaluation differs.
        ("eval_accuracy", lambda n: 0.7312 if n > 1 else 0.7012, False),
        # Not a score.
        ("eval_samples_per_second", lambda n: 16.421, False),
        ("eval_gen_len", lambda n: 31.415, False),
    ],
)
def test_a_score_that_stands_still(name: str, score: Score, is_found: bool, tmp_path: Path) -> None:
    file = state_file(tmp_path, name, score)
    assert ("eval-never-changes" in rules_of(file)) == is_found


@pytest.mark.parametrize(
    ("name", "score", "is_found"),
    [
        ("eval_accuracy", lambda n: 0.71 - 0.033 * n, True),
        ("eval_sts-dev_spearman_cosine", lambda n: 0.83 - 0.04 * n, True),
        ("eval_NanoBEIR_mean_cosine_ndcg@10", lambda n: 0.52 - 0.03 * n, True),
        ("eval_wer", lambda n: 0.302 + 0.05 * n, True),
        ("eval_cer", lambda n: 104.0 + 9 * n, True),
        # Better, level, or as far down as evaluations vary.
        ("eval_accuracy", lambda n: 0.61 + 0.03 * n, False),
        ("eval_wer", lambda n: 0.402 - 0.03 * n, False),
        ("eval_accuracy", lambda n: 0.712 - 0.004 * n, False),
        ("eval_accuracy", lambda n: 0.7 + (0.1 if n % 2 else -0.1) - 0.01 * n, False),
        # A word error rate of 2 per cent is no share above 1.
        ("eval_wer", lambda n: 2.31 - 0.01 * n, False),
    ],
)
def test_a_score_that_gets_worse(name: str, score: Score, is_found: bool, tmp_path: Path) -> None:
    file = state_file(tmp_path, name, score, eval_loss=lambda n: 1.6 - 0.03 * n)
    assert (rules_of(file).get("score-at-worst-falling-or-nan") == "warning") == is_found


def test_a_rising_loss_explains_a_falling_score(tmp_path: Path) -> None:
    file = state_file(
        tmp_path, "eval_accuracy", lambda n: 0.7 - 0.04 * n, eval_loss=lambda n: 1 + n / 5
    )
    found = rules_of(file)
    assert "eval-loss-rises" in found
    assert "score-at-worst-falling-or-nan" not in found


def rate_file(folder: Path, rate: Callable[[int], float], schedule: str = "") -> Path:
    """A trainer's state of 40 records with these rates, and the settings of its program."""
    records = [
        {"step": 10 * n, "loss": 1.1 + math.exp(-n / 12), "learning_rate": rate(n)}
        for n in range(1, 41)
    ]
    state = {"log_history": records, "max_steps": 400, "global_step": 400}
    (folder / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    if schedule:
        (folder / "args.json").write_text(
            json.dumps({"lr_scheduler_type": schedule}), encoding="utf-8"
        )
    return folder


def line(n: int) -> float:
    """A rate that falls in a line."""
    return 2e-4 * (41 - n) / 40


@pytest.mark.parametrize(
    ("rate", "schedule", "is_found"),
    [
        (lambda n: 2e-4, "cosine", True),
        (lambda n: 2e-4 * min(1, n / 4), "linear", True),
        (lambda n: line(n) * (8 if n >= 20 else 1), "", True),
        (lambda n: 1e-4 if n < 20 else 5e-4, "", True),
        (lambda n: 2e-4, "constant", False),
        (lambda n: 2e-4, "", False),
        (line, "cosine", False),
        (lambda n: line(n) if n < 20 else line(n - 19), "", False),
        (lambda n: 2e-4 * n / 40, "", False),
    ],
)
def test_a_rate_that_leaves_its_schedule(
    rate: Callable[[int], float], schedule: str, is_found: bool, tmp_path: Path
) -> None:
    found = rules_of(rate_file(tmp_path, rate, schedule))
    assert ("learning-rate-leaves-its-schedule" in found) == is_found


def test_embeddings_that_guess_within_a_batch(tmp_path: Path) -> None:
    records: list[dict[str, float]] = [
        {
            "step": n,
            "loss": math.log(64) + 0.002 * math.sin(n),
            "epoch": n / 50,
            "learning_rate": 2e-5,
        }
        for n in range(1, 51)
    ]
    records.append({"step": 50, "epoch": 1.0, "eval_dev_cosine_accuracy": 0.51})
    state = {"log_history": records, "train_batch_size": 64}
    file = tmp_path / "trainer_state.json"
    file.write_text(json.dumps(state), encoding="utf-8")
    assert rules_of(file).get("flat-loss") == "warning"
    file.write_text(json.dumps(state | {"train_batch_size": 32}), encoding="utf-8")
    assert rules_of(file).get("flat-loss") != "warning"


def test_memory_that_is_released_with_each_epoch(tmp_path: Path) -> None:
    def found(memory: Callable[[int], float]) -> str | None:
        lines = ["step,train_loss,gpu_mem_allocated_gb"]
        lines += [f"{10 * n},{2 - n / 80:.4f},{memory(n)}" for n in range(40)]
        file = tmp_path / "metrics.csv"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return rules_of(file).get("memory-grows-with-each-step")

    assert found(lambda n: 20 + 0.6 * (n % 20)) == "warning"
    # Rows of other lengths, and a single step down.
    assert found(lambda n: 20 + 6 * ((7 * n) % 5)) is None
    assert found(lambda n: 30.0 if n < 20 else 20.0) is None


def grpo_file(folder: Path, name: str, value: Callable[[int], float]) -> Path:
    """A trainer's state of 40 steps of a policy with one more curve."""
    records = [
        {
            "step": n,
            "reward": 0.3 + 0.01 * n,
            "completions/mean_length": 200.0 + n,
            "learning_rate": 1e-6,
            "grad_norm": 0.2 + 0.01 * (n % 7),
            name: value(n),
        }
        for n in range(1, 41)
    ]
    file = folder / "trainer_state.json"
    file.write_text(json.dumps({"log_history": records}), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("kl", lambda n: 0.0, "kl-is-always-zero"),
        ("loss/value_avg", lambda n: 0.1 * math.exp(n / 6), "part-of-the-loss-grows"),
        ("aux_loss", lambda n: 1.02 + 0.1 * n, "part-of-the-loss-grows"),
        ("kl", lambda n: 0.0 if n < 5 else 0.001 * n, None),
        ("loss/value_avg", lambda n: 0.1 + 0.01 * n, None),
        ("aux_loss", lambda n: 1.02 + 0.003 * n, None),
        ("kl_loss", lambda n: 0.0001 * math.exp(n / 6), None),
        ("num_loss_tokens", lambda n: 1000.0 * n, None),
        ("loss/policy_avg", lambda n: 0.001 * n, None),
    ],
)
def test_what_a_policys_log_shows(
    name: str, value: Callable[[int], float], rule: str | None, tmp_path: Path
) -> None:
    found = set(rules_of(grpo_file(tmp_path, name, value)))
    assert found & {"kl-is-always-zero", "part-of-the-loss-grows"} == ({rule} if rule else set())


@pytest.mark.parametrize(
    ("rows", "perplexity", "rule"),
    [
        (1, math.exp, "eval-without-loss"),
        # An evaluator of its own reads the rows: the Trainer was given none.
        (0, math.exp, None),
        (64, lambda loss: 38.0, "score-at-worst-falling-or-nan"),
        (64, lambda loss: math.inf, "score-at-worst-falling-or-nan"),
        (64, math.exp, None),
        (64, lambda loss: math.exp(loss + 0.03), None),
    ],
)
def test_what_an_evaluation_measures(
    rows: int, perplexity: Callable[[float], float], rule: str | None, tmp_path: Path
) -> None:
    records: list[dict[str, float]] = []
    for n in range(1, 41):
        records.append({"step": n, "loss": 1.1 + math.exp(-n / 12)})
        if n % 10 == 0:
            loss = 1.6 - n / 100
            speed = {
                "eval_runtime": 0.5 + n / 1000,
                "eval_samples_per_second": rows / (0.5 + n / 1000),
            }
            records.append(
                {"step": n, "eval_loss": loss, "eval_perplexity": perplexity(loss), **speed}
            )
    file = tmp_path / "trainer_state.json"
    file.write_text(json.dumps({"log_history": records}), encoding="utf-8")
    found = set(rules_of(file))
    assert found & {"eval-without-loss", "score-at-worst-falling-or-nan"} == (
        {rule} if rule else set()
    )


def test_one_class_for_each_row(tmp_path: Path) -> None:
    """eval_loss changes, so the weights do, and the accuracy is that of the most common class."""
    records: list[dict[str, float]] = []
    for n in range(1, 61):
        records.append({"step": n, "loss": 0.651 + 0.01 * math.sin(3 * n)})
        if n % 10 == 0:
            records.append({"step": n, "eval_loss": 0.653 - n / 1e5, "eval_accuracy": 0.6430976})
    file = tmp_path / "trainer_state.json"
    file.write_text(json.dumps({"log_history": records}), encoding="utf-8")
    finding = next(one for one in diagnose(file).findings if one.rule == "eval-never-changes")
    assert "one class" in finding.message
