"""The rules on real runs of tiny models (`make_runs`), and on healthy runs of random shapes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.logs.faults import FAULTS, found_in, spoiled
from tests.logs.healthy import State, healthy
from truetune.checks.count_optimizer_steps import SCARCE, steps_of_ended_log
from truetune.checks.diagnose_log import diagnose
from truetune.checks.rule_catalogue import all_rules
from truetune.logs.read_jsonl_csv_json_logs import add_trainer_state
from truetune.logs.read_run_log import read_run
from truetune.logs.run_log import DataFacts, RunLog
from truetune.logs.run_log_builder import RunLogBuilder

RUNS = Path(__file__).with_name("runs")
FOUND = {
    "all-rows-masked": {"loss-or-gradient-exactly-zero"},
    "best-is-worst": {"best-checkpoint-is-worst"},
    "dpo-by-length": {"dpo-accuracy-at-once"},
    "dpo-too-weak": {"dpo-stuck-at-ln2", "learning-rates-sum-to-nothing"},
    "dpo-unlearns": {"dpo-chosen-falls"},
    "frozen-adapter": {"grad-norm-zero"},
    "identical-pairs": {"dpo-stuck-at-ln2"},
    "labels-not-shifted": {"shortcut-loss"},
    "learning-rate-huge": {"loss-diverges", "loss-climbs-above-guessing"},
    "learning-rate-tiny": {"flat-loss", "learning-rates-sum-to-nothing"},
    "learning-rate-too-high": {"loss-diverges"},
    "lora-without-effect": {"flat-loss"},
    "loss-summed": {"first-loss-above-guessing"},
    "masked-rows": {"loss-or-gradient-exactly-zero"},
    "masked-rows-in-windows": {"loss-or-gradient-exactly-zero"},
    "overfit": {"eval-loss-rises"},
    "resumed-without-optimizer": {"resume-starts-fresh"},
    "resumed-without-weights": {"resume-starts-fresh"},
    "schedule-four-times": {"learning-rate-ended-early"},
    "warmup-500": {"learning-rate-never-peaked"},
}
"""Real runs that are broken -> what is found, and nothing else"""


def found(log: RunLog) -> dict[str, Any]:
    """Findings by rule."""
    return {finding.rule: finding for rule in all_rules("log") for finding in rule(log).findings()}


def log_of(state: State) -> RunLog:
    """The log of a trainer_state.json with this content."""
    log_builder = RunLogBuilder("made", "transformers")
    add_trainer_state(state, log_builder)
    return log_builder.build()


@pytest.mark.parametrize("path", sorted(RUNS.glob("*.json")), ids=lambda path: path.stem)
def test_real_runs(path: Path) -> None:
    assert set(found(read_run(path))) == FOUND.get(path.stem, set())


def test_every_broken_run_is_there() -> None:
    made = {path.stem for path in RUNS.glob("*.json")}
    assert FOUND.keys() == {name for name in made if not name.startswith("healthy")}


@pytest.mark.parametrize("first", range(0, 200, 25))
def test_healthy_runs_are_silent(first: int) -> None:
    for seed in range(first, first + 25):
        log = log_of(healthy(seed))
        assert found(log).keys() <= _said_of_a_short_run(log), seed


def _said_of_a_short_run(log: RunLog) -> set[str]:
    """A run of a few steps over all of its rows is sound, and too short to have learned: that may be said."""
    made = steps_of_ended_log(log)
    is_short = made is not None and made.most < SCARCE and log.epochs_at_end >= 0.9
    return {"run-ended-after-few-steps"} if is_short else set()


def test_a_run_in_its_warm_up_is_left_alone() -> None:
    records = [{"step": i, "loss": 2.0, "learning_rate": i * 1e-6} for i in range(1, 41)]
    assert "learning-rate-never-peaked" in found(log_of({"max_steps": 40, "log_history": records}))
    assert not found(log_of({"max_steps": 4000, "log_history": records}))


def test_the_step_of_a_divergence_is_named() -> None:
    rng = np.random.default_rng(0)
    for place in (60, 120, 250):
        level = np.where(np.arange(300) < place, 1.5, 6.0) + rng.normal(0, 0.05, 300)
        records = [{"step": i + 1, "loss": float(loss)} for i, loss in enumerate(level)]
        finding = found(log_of({"log_history": records}))["loss-diverges"]
        assert finding.severity == "error"
        assert f"at step {place + 1} " in finding.message


def test_a_zero_between_losses_of_preferences_is_rounding() -> None:
    """huggingface/trl#1236: batches of one pair, losses rounded to four digits."""
    losses = [0.0, 2.504, 0.0, 0.5027, 0.0, 0.31]
    margins = [17.2, 5.6, 11.7, 7.6, 12.0, 6.0]
    records = [
        {"step": i, "loss": loss, "rewards/margins": margin, "grad_norm": 1.0}
        for i, (loss, margin) in enumerate(zip(losses, margins, strict=True), 1)
    ]
    assert not found(log_of({"log_history": records}))


def test_a_second_training_under_the_same_step_count_is_one_finding() -> None:
    """Public: a notebook trained 200 steps, then again with a schedule of 300 more; the loss was 0.009 and then 3.0."""
    rng = np.random.default_rng(0)
    rate = np.concatenate((np.linspace(4e-4, 0, 201), np.linspace(3.9e-5, 0, 299)))
    loss = np.concatenate(
        (1.7 * np.exp(-np.arange(201) / 40) + 0.009, 3 * np.exp(-np.arange(299) / 30) + 0.06)
    )
    loss = loss * np.exp(rng.normal(0, 0.02, loss.size))
    records = [
        {"step": i + 1, "loss": float(a), "learning_rate": float(b)}
        for i, (a, b) in enumerate(zip(loss, rate, strict=True))
    ]
    findings = found(log_of({"max_steps": 500, "log_history": records}))
    assert set(findings) == {"resume-starts-fresh"}
    assert "from its end" in findings["resume-starts-fresh"].evidence[0]


def test_schedules_that_restart_are_no_seams() -> None:
    x = np.arange(300) / 300
    rate = 1e-4 * 0.5 * (1 + np.cos(np.pi * ((3 * x) % 1)))
    records = [
        {"step": i + 1, "loss": 2 - i / 300, "learning_rate": float(r)} for i, r in enumerate(rate)
    ]
    assert not found(log_of({"log_history": records}))


def test_figures_hold_what_is_named(tmp_path: Path) -> None:
    for name in FOUND:
        for finding in found(read_run(RUNS / f"{name}.json")).values():
            if finding.figure is not None:
                assert all(
                    len(series.x) == len(series.y) > 0 for series in finding.figure.series
                ), finding.rule
                json.dumps(finding.message)


@pytest.mark.parametrize("name", FAULTS)
def test_faults_in_healthy_runs_are_found(name: str) -> None:
    fault, rule = FAULTS[name]
    runs = [
        found_in(log_of(state)) for seed in range(40) if (state := spoiled(seed, fault)) is not None
    ]
    assert len(runs) > 5
    assert sum(rule in run for run in runs) > 0.6 * len(runs)


@pytest.mark.parametrize("name", ["brier_score", "ter_score", "score", "window_overlap"])
def test_a_metric_of_no_known_or_of_falling_kind_is_right_at_its_lowest(name: str) -> None:
    records = [{"step": i, f"eval_{name}": 1 / i} for i in (10, 20, 30)]
    assert not found(
        log_of({"log_history": records, "best_metric": 1 / 30, "best_global_step": 30})
    )


def test_a_trial_of_few_steps_and_a_rate_that_was_reached_are_left_alone() -> None:
    records = [{"step": i, "loss": 2.0, "learning_rate": (i - 1) * 1.5e-3} for i in (1, 2, 3)]
    assert not found(log_of({"max_steps": 3, "log_history": records}))
    records = [{"step": i, "loss": 2.0, "learning_rate": i * 1e-6} for i in range(1, 41)]
    assert not found(log_of({"max_steps": 40, "learning_rate": 4e-5, "log_history": records}))


def test_losses_of_a_regression_are_not_those_of_tokens(tmp_path: Path) -> None:
    records = [{"step": i, "loss": 416.0 - 5 * i} for i in range(1, 60)]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": records}))
    assert found(read_run(tmp_path))["first-loss-above-guessing"].severity == "warning"
    config = {"vocab_size": 200, "architectures": ["BertForSequenceClassification"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert not found(read_run(tmp_path))


def test_small_batches_of_short_answers() -> None:
    """One target a batch: wrong answers cost much, right ones nothing, and no loss is near its level."""
    rng = np.random.default_rng(0)
    easy = np.exp(rng.normal(-3 - np.arange(400) / 100, 0.5))
    wrong = rng.random(400) < 0.08
    losses = np.where(wrong, rng.uniform(1, 3, 400), easy)
    losses[0] = 2.0
    records = [
        {"step": i + 1, "loss": float(loss), "grad_norm": float(10 * loss), "epoch": (i + 1) / 400}
        for i, loss in enumerate(losses)
    ]
    assert not found(log_of({"log_history": records}))
    for seed in range(20):
        noise = np.random.default_rng(seed).exponential(0.7, 200)
        assert not found(
            log_of(
                {"log_history": [{"step": i + 1, "loss": float(v)} for i, v in enumerate(noise)]}
            )
        ), seed


def test_a_shortcut_needs_answers_that_differ() -> None:
    losses = np.interp(np.arange(100), [0, 20, 40, 99], [5.0, 0.5, 0.002, 0.001])
    state = {
        "log_history": [
            {"step": i + 1, "loss": float(v), "epoch": i / 101} for i, v in enumerate(losses)
        ]
    }
    assert "few answers" in found(log_of(state))["shortcut-loss"].message
    facts: dict[str, Any] = {
        "rows": 1000,
        "examples": 1000,
        "supervised": 2000,
        "unigram": 3.0,
        "commonest": 0.1,
    }
    for answer, expected in ((2.0 / 2, False), (6.9 / 2, True)):
        log = replace(log_of(state), data=DataFacts(answer=answer, **facts))
        assert ("shortcut-loss" in found(log)) == expected


def test_packing_makes_more_rows_of_the_same_tokens() -> None:
    records = [
        {"step": i, "loss": 2.0, "epoch": i / 50, "num_tokens": 256.0 * i} for i in range(1, 51)
    ]
    log = log_of({"log_history": records, "train_batch_size": 4})
    facts: dict[str, Any] = {
        "rows": 6,
        "examples": 6,
        "unigram": 5.0,
        "answer": 3.0,
        "commonest": 0.1,
    }
    assert not found(replace(log, data=DataFacts(supervised=12_000, **facts)))
    assert (
        found(replace(log, data=DataFacts(supervised=500, **facts)))[
            "epoch-length-differs-from-rows"
        ].severity
        == "warning"
    )


def test_a_norm_that_is_not_measured_and_margins_of_a_small_beta() -> None:
    records = [{"step": i, "loss": 4 - i / 30, "grad_norm": 0.0} for i in range(60)]
    assert not found(log_of({"log_history": records}))
    x = np.arange(60) / 60
    records = [
        {
            "step": i,
            "loss": 0.693 - 0.004 * v,
            "rewards/margins": 0.008 * v,
            "rewards/accuracies": 0.5 + 0.4 * v,
        }
        for i, v in enumerate(x.tolist())
    ]
    assert not found(log_of({"log_history": records}))


def test_cyclic_rates_and_a_warm_up_with_no_known_end() -> None:
    rate = np.abs((np.arange(160) % 40) - 20) / 20 * 1e-3
    records = [
        {"step": i + 1, "loss": 4 - i / 60, "learning_rate": float(r)} for i, r in enumerate(rate)
    ]
    assert not found(log_of({"log_history": records}))
    records = [{"step": i, "loss": 4 - i / 60, "learning_rate": i * 1e-6} for i in range(1, 40)]
    assert found(log_of({"log_history": records}))["learning-rate-never-peaked"].severity == "info"


def swinging(
    period: float, gap: int, steps: int, steps_an_epoch: float = 5_000, **state: Any
) -> dict[str, Any]:
    """What is found where the loss falls from its highest to its lowest every `period` steps, and leaps back."""
    rng = np.random.default_rng(0)
    step = np.arange(gap, steps + 1, gap)
    loss = 1.5 * (1.15 - 0.3 * (step % period) / period) + rng.normal(0, 0.02, step.size)
    records = [
        {"step": int(at), "loss": float(value), "epoch": at / steps_an_epoch}
        for at, value in zip(step, loss, strict=True)
    ]
    return found(log_of({"log_history": records, **state}))


@pytest.mark.parametrize(
    ("period", "gap", "steps", "state"),
    [
        (
            50,
            10,
            2_000,
            {},
        ),  # QLoRA's published runs: group_by_length, which trainer_state.json does not name
        (50, 1, 600, {}),
        (25, 5, 2_000, {}),  # on two processes
        (12.5, 1, 600, {}),  # on four
        (50 / 3, 1, 600, {"devices": 3, "group_by_length": True}),
        (50, 10, 2_000, {"train_sampling_strategy": "group_by_length"}),
        (40, 1, 800, {"steps_an_epoch": 160}),  # four stretches of a small set
        (300, 10, 6_000, {"steps_an_epoch": 100}),  # each third epoch in the same order
        (100, 10, 2_000, {"eval_steps": 100}),
        (200, 10, 4_000, {"save_steps": 200}),
        (8, 1, 400, {"gradient_accumulation_steps": 8}),
    ],
)
def test_a_period_that_something_else_may_have_made_is_no_rate(
    period: float, gap: int, steps: int, state: dict[str, Any]
) -> None:
    assert not swinging(period, gap, steps, **state)


@pytest.mark.parametrize(
    ("period", "gap", "state", "excluded"),
    [
        (
            50,
            10,
            {"group_by_length": False, "eval_steps": 120},
            ["epochs (every 5,000 steps)", "evaluations (every 120"],
        ),
        (50, 10, {"train_sampling_strategy": "random"}, ["epochs"]),
        (
            50,
            10,
            {"devices": 3, "group_by_length": True},
            ["batches grouped by length (group_by_length) (every 16.67"],
        ),
        (
            70,
            10,
            {},
            ["batches grouped by length (group_by_length) (every 50 or 25 or 12.5 steps)"],
        ),
        (8, 1, {"gradient_accumulation_steps": 4}, ["accumulation of gradients (every 4 steps)"]),
    ],
)
def test_a_swing_names_the_rivals_that_were_excluded(
    period: float, gap: int, state: dict[str, Any], excluded: list[str]
) -> None:
    finding = swinging(period, gap, 200 * gap, **state)["loss-oscillates"]
    assert f"a period of {period} steps" in finding.message
    assert all(text in finding.evidence[1] for text in excluded)


WHISPER = {
    "eval_loss": [0.321, 0.358, 0.394, 0.412, 0.42],
    "eval_wer": [0.789, 0.748, 0.743, 0.744, 0.745],
}
"""A published run: the loss of the evaluations rises while the word error rate falls"""


def evaluated(curves: dict[str, list[float]], **state: Any) -> dict[str, Any]:
    """What is found in a run with these evaluations."""
    count = len(next(iter(curves.values())))
    records = [
        {"step": 1_000 * (i + 1), **{name: values[i] for name, values in curves.items()}}
        for i in range(count)
    ]
    return found(log_of({"log_history": records, **state}))


def test_a_run_that_keeps_its_best_checkpoint_by_another_metric_is_left_alone() -> None:
    kept = {"best_metric": 0.743, "best_model_checkpoint": "out/checkpoint-3000"}
    assert not evaluated(WHISPER, **kept)
    assert evaluated(WHISPER, **(kept | {"best_metric": 0.5}))  # of no metric in this log
    accuracy = {
        "eval_loss": [0.3, 0.35, 0.4, 0.45, 0.5],
        "eval_accuracy": [0.8, 0.84, 0.86, 0.88, 0.89],
    }
    assert not evaluated(accuracy, best_metric=0.89, best_model_checkpoint="out/checkpoint-5000")


@pytest.mark.parametrize(
    ("name", "values", "severity"),
    [
        ("eval_wer", WHISPER["eval_wer"], "info"),
        ("eval_rouge1", [0.20, 0.22, 0.25, 0.26, 0.27], "info"),
        ("eval_mean_token_accuracy", [0.70, 0.71, 0.72, 0.72, 0.73], "info"),
        (
            "eval_mean_token_accuracy",
            [0.700, 0.701, 0.700, 0.698, 0.699],
            "warning",
        ),  # no better by a hundredth
        ("eval_accuracy", [0.80, 0.85, 0.80, 0.78, 0.76], "warning"),  # it falls back
        ("eval_accuracy", [0.80, 0.70, 0.65, 0.60, 0.60], "warning"),
        ("eval_wer", [0.70, 0.75, 0.80, 0.85, 0.90], "warning"),
        ("eval_entropy", [0.70, 0.75, 0.80, 0.85, 0.90], "warning"),  # better in no known direction
        ("eval_runtime", [9.0, 8.0, 7.0, 6.0, 5.0], "warning"),
    ],
)
def test_a_metric_that_gets_better_while_eval_loss_rises_is_named(
    name: str, values: list[float], severity: str
) -> None:
    finding = evaluated({"eval_loss": WHISPER["eval_loss"], name: values})["eval-loss-rises"]
    assert finding.severity == severity
    assert (f"while {name} gets better" in finding.message) == (severity == "info")


def summed(times: float, accumulated: int | None = None, noise: float = 0.0) -> dict[str, Any]:
    """What is found where the training loss is so many times the loss of the evaluations."""
    rng = np.random.default_rng(0)
    level = 2.5 * np.exp(-np.arange(1, 101) / 60) + 0.3
    loss = times * level * np.exp(rng.normal(0, noise, level.size))
    records = [
        {"step": i + 1, "loss": float(value), "grad_norm": 40.0} for i, value in enumerate(loss)
    ]
    records += [{"step": i, "eval_loss": float(level[i - 1])} for i in range(10, 101, 10)]
    facts = {} if accumulated is None else {"gradient_accumulation_steps": accumulated}
    return found(log_of({"log_history": records, **facts}))


def test_a_loss_that_is_a_whole_number_of_times_the_evaluations_is_a_sum() -> None:
    """Public: a run of 16 accumulated batches, whose loss was 284.9 at first and 5.02 beside an eval_loss of 0.304."""
    for times in (2, 4, 16, 64):
        finding = summed(times, noise=0.01)
        assert set(finding) == {"loss-is-a-sum"}
        measured = float(finding["loss-is-a-sum"].message.split("loss is ")[1].split(" times")[0])
        assert measured == pytest.approx(times, rel=0.02)
    assert set(summed(16, 16)) == {"loss-is-a-sum"}
    assert "loss-is-a-sum" not in summed(16, 4)
    for share in (1.0, 1.1, 1.5, 2.5, 3.5):
        assert "loss-is-a-sum" not in summed(share)
    assert "loss-is-a-sum" not in summed(2, noise=0.2)


def test_a_loss_that_comes_down_at_once_was_of_a_head_that_was_never_run_like_this(
    tmp_path: Path,
) -> None:
    """Public: mT5 begins at 25.5, and at 3.4 on rows that were held out a hundred steps later."""
    losses = [25.5, 20.1, 16.6, 12.0, 8.0, 5.0, 4.7, 3.9, 3.7, 3.5]
    records: list[dict[str, float]] = [
        {"step": 10 * (i + 1), "loss": loss} for i, loss in enumerate(losses)
    ]
    records += [{"step": 100, "eval_loss": 3.4}, {"step": 200, "eval_loss": 3.0}]
    state = tmp_path / "trainer_state.json"
    state.write_text(json.dumps({"log_history": records}))
    assert not found(read_run(tmp_path))
    (tmp_path / "config.json").write_text(
        json.dumps({"vocab_size": 250_112, "architectures": ["MT5ForConditionalGeneration"]})
    )
    assert found(read_run(tmp_path))["first-loss-above-guessing"].severity == "info"
    state.write_text(
        json.dumps({"log_history": [{"step": i, "loss": 25.5 - i / 10} for i in range(1, 11)]})
    )
    assert found(read_run(tmp_path))["first-loss-above-guessing"].severity == "error"


def _with_parts(times: float, names: tuple[str, ...]) -> RunLog:
    """A loss that begins at 24 and falls to 4, and losses beside it that are smaller by a factor."""
    steps = range(20, 820, 20)
    values = [4 + 20 / (1 + number / 8) for number, _ in enumerate(steps)]
    history = [
        {"step": step, "loss": value, **dict.fromkeys(names, value * times)}
        for step, value in zip(steps, values, strict=True)
    ]
    return log_of({"log_history": history, "max_steps": 800, "global_step": 800})


@pytest.mark.parametrize(
    ("times", "names", "count"),
    [
        (0.3, ("train/ploss_0", "train/ploss_1", "train/ploss_2"), 0),
        (0.4, ("ce_loss", "aux_loss"), 0),
        (0.4, ("ce_loss",), 1),
        (0.4, ("eval_a_loss", "eval_b_loss"), 1),
        (0.4, ("accuracy_0", "accuracy_1"), 1),
        (1.5, ("ce_loss", "aux_loss"), 1),
        (0.3, (), 1),
    ],
)
def test_a_loss_that_is_made_of_others_may_be_large(
    times: float, names: tuple[str, ...], count: int
) -> None:
    assert ("first-loss-above-guessing" in found(_with_parts(times, names))) == bool(count)


def _slowly_falling(rates: list[float], fall: float) -> RunLog:
    """Fifty records over two epochs: a loss near 9.7 that falls a little, as in a long warm-up."""
    noise = np.random.default_rng(5).normal(0, 0.02, len(rates))
    history = [
        {
            "step": 10 * n + 10,
            "epoch": 2.2 * (n + 1) / len(rates),
            "learning_rate": rate,
            "loss": 9.77 - fall * n / len(rates) + float(noise[n]),
        }
        for n, rate in enumerate(rates)
    ]
    return log_of(
        {"log_history": history, "max_steps": 2300, "global_step": 500, "num_train_epochs": 10}
    )


@pytest.mark.parametrize(
    ("peak", "adapter", "begins"),
    [
        (1e-6, "LORA", "raise the learning rate from 1e-06: for SFT of an adapter use 1e-4"),
        (1e-5, "LORA", "raise the learning rate from 1e-05: for SFT of an adapter use 1e-4"),
        (5e-5, "LORA", "check in this order"),
        (1e-6, None, "raise the learning rate from 1e-06: SFT starts at 1e-5 in full fine-tuning"),
        (1e-5, None, "check in this order"),
    ],
)
def test_a_flat_loss_leads_with_a_rate_that_is_too_low(
    tmp_path: Path, peak: float, adapter: str | None, begins: str
) -> None:
    noise = np.random.default_rng(3).normal(0, 0.01, 60)
    history = [
        {
            "step": 10 * n + 10,
            "epoch": 3 * (n + 1) / 60,
            "learning_rate": peak,
            "loss": 1.9 + float(noise[n]),
        }
        for n in range(60)
    ]
    state = {"log_history": history, "max_steps": 600, "global_step": 600}
    checkpoint = tmp_path / "checkpoint-600"
    checkpoint.mkdir()
    (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    if adapter is not None:
        (checkpoint / "adapter_config.json").write_text(json.dumps({"peft_type": adapter}))
    (finding,) = (f for f in diagnose(str(tmp_path)).findings if f.rule == "flat-loss")
    assert finding.remedy.startswith(begins)
    # Said once: where the remedy begins with the rate, its list of questions leaves it out.
    assert finding.remedy.count("learning rate") <= 1


@pytest.mark.parametrize(
    ("printed", "is_adapter"),
    [
        ('  "adapter": "lora",', True),  # Axolotl
        ("trainable params: 20,971,520 || all params: 7,268,995,072 || trainable%: 0.2885", True),
        ("[INFO|2026] llamafactory: Fine-tuning method: LoRA", True),
        ("Trainable parameters = 41,943,040 of 8,072,204,288 (0.52% trained)", True),  # Unsloth
        ("python sft.py --model_name_or_path some/model --use_peft --lora_r 8", True),
        ("trainable params: 7,615,616,512 || all params: 7,615,616,512 || trainable%: 100", False),
        ("Number of trainable parameters = 494,032,768", False),
        ("finetuning_type: full", False),
    ],
)
def test_console_output_tells_that_an_adapter_is_trained(
    tmp_path: Path, printed: str, is_adapter: bool
) -> None:
    noise = np.random.default_rng(3).normal(0, 0.01, 60)
    records = [
        f"{{'loss': {1.9 + noise[n]:.4f}, 'learning_rate': 1e-05, 'epoch': {3 * (n + 1) / 60:.2f}}}"
        for n in range(60)
    ]
    log = tmp_path / "train.log"
    log.write_text("\n".join([printed, *records]), encoding="utf-8")
    (finding,) = (one for one in diagnose(str(log)).findings if one.rule == "flat-loss")
    assert finding.remedy.startswith("raise the learning rate from 1e-05") is is_adapter


RISING = [5e-7 * (n + 1) for n in range(50)]


@pytest.mark.parametrize(
    ("rates", "fall", "flat"),
    [
        (RISING, 0.16, False),
        (RISING, 0.0, True),
        ([2e-5] * 50, 0.16, True),
        (RISING[::-1], 0.16, True),
        ([*RISING[:25], *RISING[:25][::-1]], 0.16, True),
    ],
)
def test_a_loss_that_falls_in_the_warm_up_is_not_flat(
    rates: list[float], fall: float, flat: bool
) -> None:
    assert ("flat-loss" in found(_slowly_falling(rates, fall))) == flat


@pytest.mark.parametrize(
    ("first", "flat"),
    [
        ([], True),
        ([4.7, 4.1, 3.2, 2.4, 1.6, 1.2], False),
        ([1.5, 1.3, 1.2], False),
        ([4.7], True),
        ([0.3, 0.4, 0.5], False),  # loss-diverges says so
        ([1.02, 1.01, 1.0], True),
    ],
    ids=[
        "flat",
        "fell far",
        "fell a third",
        "one high record",
        "rose at first",
        "fell within the noise",
    ],
)
def test_a_loss_that_fell_at_first_is_not_flat(first: list[float], flat: bool) -> None:
    noise = np.random.default_rng(3).normal(0, 0.02, 60)
    losses = first + [1.0 + float(value) for value in noise[len(first) :]]
    history = [
        {"step": 10 * n + 10, "epoch": 3 * (n + 1) / 60, "learning_rate": 1e-4, "loss": loss}
        for n, loss in enumerate(losses)
    ]
    log = log_of(
        {"log_history": history, "max_steps": 600, "global_step": 600, "num_train_epochs": 3}
    )
    assert ("flat-loss" in found(log)) == flat


@pytest.mark.parametrize(
    "losses",
    [
        2 * np.exp(np.random.default_rng(0).normal(0, 1, 120)),
        np.random.default_rng(1).uniform(0.2, 9, 120),
        np.where(np.random.default_rng(7).random(120) < 0.5, 1.2, 6.0)
        + np.random.default_rng(2).normal(0, 0.2, 120),
        np.random.default_rng(3).exponential(0.7, 200),
    ],
    ids=["lognormal", "uniform", "two levels", "exponential"],
)
def test_a_chaotic_loss_is_blamed_on_a_high_rate_alone(losses: np.ndarray[Any, Any]) -> None:
    for rate, is_found in ((5e-3, True), (2e-5, False)):
        records = [
            {"step": i + 1, "loss": float(v), "learning_rate": rate} for i, v in enumerate(losses)
        ]
        assert ("loss-is-chaotic" in found(log_of({"log_history": records}))) is is_found


def test_a_loss_above_guessing_later_on_is_one_finding_with_its_consequences(
    tmp_path: Path,
) -> None:
    losses = [7.6, 22.6, 300.0, 860.0, 0.0, 990.0, 0.0, 390.0, 300.0, 360.0, 320.0, 390.0]
    records = [
        {"step": i + 1, "loss": v, "grad_norm": 100.0 if v else math.nan, "learning_rate": 5.0}
        for i, v in enumerate(losses)
    ]
    (tmp_path / "trainer_state.json").write_text(
        json.dumps({"log_history": records}), encoding="utf-8"
    )
    (finding,) = diagnose(tmp_path).findings
    assert finding.rule == "loss-climbs-above-guessing"
    assert any("loss-or-gradient-exactly-zero" in line for line in finding.evidence)


def test_gradients_that_are_never_finite_are_no_matter_of_the_rate() -> None:
    rng = np.random.default_rng(3)
    records = [
        {"step": 5 * n, "epoch": n / 24, "loss": float(2.6 + rng.normal(0, 0.05)),
         "grad_norm": math.nan, "learning_rate": 0.0}
        for n in range(1, 49)
    ]  # fmt: skip
    findings = found(log_of({"log_history": records, "max_steps": 240}))
    assert set(findings) == {"grad-norm-explodes"}
    assert findings["grad-norm-explodes"].severity == "error"
    assert "bf16" in findings["grad-norm-explodes"].remedy
    assert "raise" not in findings["grad-norm-explodes"].remedy


def test_gradients_of_a_loss_over_no_label_are_no_matter_of_the_precision() -> None:
    records = [
        {"step": 5 * n, "epoch": n / 24, "loss": 0.0 if n > 8 else 2.0 - n / 50,
         "grad_norm": math.nan if n > 8 else 1.2, "learning_rate": 1e-4}
        for n in range(1, 49)
    ]  # fmt: skip
    findings = found(log_of({"log_history": records, "max_steps": 240}))
    exploding = findings.get("grad-norm-explodes")
    if exploding is not None:
        assert "-100" in exploding.remedy
        assert "bf16" not in exploding.remedy
    assert findings


def test_a_loss_that_hardly_falls_lists_what_remains() -> None:
    rng = np.random.default_rng(4)

    def state(drop: float) -> State:
        return {
            "log_history": [
                {"step": 5 * n, "epoch": n / 12.4, "loss": float(1.41 - drop * n / 37 + rng.normal(0, 0.03)),
                 "grad_norm": 0.4, "learning_rate": 2e-5}
                for n in range(1, 38)
            ]
        }  # fmt: skip

    findings = found(log_of(state(0.01)))
    assert "flat-loss" in findings
    assert "lora_alpha" in findings["flat-loss"].remedy
    assert "is anything trained" not in findings["flat-loss"].remedy  # gradients are logged
    assert "flat-loss" not in found(log_of(state(0.25)))


@pytest.mark.parametrize(
    ("smoothing", "rate", "said", "unsaid"),
    [
        (0.5, 5e-6, "set label_smoothing to 0", "raise"),
        (0.0, 1e-7, "raise learning_rate from 1e-07", "label_smoothing"),
        (0.1, 5e-6, "above 5e-06 for LoRA", "label_smoothing"),
    ],
)
def test_label_smoothing_is_read_from_loss_against_margin(
    smoothing: float, rate: float, said: str, unsaid: str
) -> None:
    rng = np.random.default_rng(5)
    records = []
    for step in range(1, 41):
        margin = rng.normal(0, 0.002)
        loss = -(1 - smoothing) * math.log(1 / (1 + math.exp(-margin)))
        loss -= smoothing * math.log(1 / (1 + math.exp(margin)))
        records.append(
            {"step": step, "loss": loss + rng.normal(0, 1e-5), "rewards/margins": margin,
             "rewards/accuracies": 0.5, "grad_norm": 0.4, "learning_rate": rate}
        )  # fmt: skip
    finding = found(log_of({"log_history": records}))["dpo-stuck-at-ln2"]
    assert said in finding.remedy
    assert unsaid not in finding.remedy


@pytest.mark.parametrize(
    ("command", "summary", "severity", "says"),
    [
        (
            "--learning_rate 5e-6 --warmup_steps 500",
            True,
            "error",
            ("at the last record (30)", "6% of the configured 5e-06", "a warm-up of 500 steps"),
        ),
        ("", True, "error", ("at the last record (30)",)),
        ("", False, "info", ("at the last record (30)",)),
        ("--learning_rate 3e-7 --warmup_steps 30", True, "", ()),
    ],
)
def test_a_printed_log_that_ends_in_its_warm_up(
    command: str, summary: bool, severity: str, says: tuple[str, ...], tmp_path: Path
) -> None:
    lines = [f"+ trl sft {command}", "  0%|          | 0/60 [00:00<?, ?it/s]"]
    lines += [f"{{'loss': 2.0, 'learning_rate': {n * 1e-8:.3g}}}" for n in range(1, 31)]
    lines += ["{'train_runtime': 1931.2, 'train_loss': 2.0}"] * summary
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines), encoding="utf-8")
    finding = found(read_run(path)).get("learning-rate-never-peaked")
    assert (finding.severity if finding else "") == severity
    if finding is not None:
        text = " ".join((finding.message, *finding.evidence))
        assert all(part in text for part in says)


@pytest.mark.parametrize(
    ("spread", "first"), [(0.01, "check whether the labels"), (0.001, "check whether chosen")]
)
def test_random_labels_come_first_where_the_policy_moves_and_tells_nothing_apart(
    spread: float, first: str
) -> None:
    rng = np.random.default_rng(1)
    records = [
        {
            "step": step,
            "loss": math.log1p(math.exp(-margin)),
            "rewards/margins": margin,
            "rewards/accuracies": 0.5 + 0.05 * (-1) ** step,
            "eval_rewards/accuracies": 0.52,
            "grad_norm": 12.0,
            "learning_rate": 2e-6,
        }
        for step, margin in enumerate(rng.normal(0, spread, 40).tolist(), 1)
    ]  # fmt: skip
    finding = found(log_of({"log_history": records}))["dpo-stuck-at-ln2"]
    assert finding.remedy.startswith(first)
    assert ("does not depend on the answers" in " ".join(finding.evidence)) == (spread > 0.005)


def test_a_preference_run_that_ends_in_its_warm_up_is_not_told_to_raise_the_rate() -> None:
    rng = np.random.default_rng(0)
    records = [
        {
            "step": step,
            "loss": math.log1p(math.exp(-margin)),
            "rewards/margins": margin,
            "rewards/accuracies": 0.5,
            "learning_rate": step * 1e-8,
        }
        for step, margin in enumerate(rng.normal(0, 2e-3, 60).tolist(), 1)
    ]
    remedy = found(log_of({"log_history": records}))["dpo-stuck-at-ln2"].remedy
    assert remedy.startswith("shorten the warm-up")
    assert "raise the learning rate" not in remedy


def test_a_loss_that_jumps_behind_its_first_record_began_with_that_record() -> None:
    rng = np.random.default_rng(3)
    values = [2.11, 4.83, 8.42, *(6.6 + rng.normal(0, 0.05, 60)).tolist()]
    records = [{"step": 5 * n, "loss": value} for n, value in enumerate(values, 1)]
    finding = found(log_of({"log_history": records}))["loss-diverges"]
    # Each value stands beside the step of its own record.
    assert (
        "rises from 2.11 at step 5 to 4.83 at step 10 and stays up: 6.6 at the end"
        in finding.message
    )
    assert "above the 2.11 that it started with" in finding.message
    assert "first record 2.11" in finding.evidence[0]


CLIMBS = {
    "destroyed within the first record": ([6.97, 9.75, 8.74, 8.17], 7.2, 0.05, True),
    "down to the unigrams": ([7.4, 11.2, 10.1, 8.8, 8.1], 7.6, 0.08, True),
    # A first record that is low by chance among losses of single rows, a small climb of the warm-up, and a run that
    # learns on below where it began.
    "single rows": ([0.6, 3.1, 1.2, 2.2], 1.8, 0.6, False),
    "a small climb": ([1.9, 2.6, 2.4], 2.2, 0.02, False),
    "it learns again": ([6.97, 9.75, 8.17], 6.4, 0.05, False),
}


@pytest.mark.parametrize("name", CLIMBS)
def test_a_loss_that_climbs_at_first_and_comes_no_lower(name: str) -> None:
    head, level, noise, is_found = CLIMBS[name]
    rng = np.random.default_rng(5)
    values = [*head, *(level + rng.normal(0, noise, 40)).tolist()]
    records = [{"step": 10 * n, "loss": max(value, 0.61)} for n, value in enumerate(values, 1)]
    finding = found(log_of({"log_history": records})).get("loss-diverges")
    assert (finding is not None) == is_found
    if finding is not None:
        assert "none of the" in finding.message
        assert "after the first is as low again" in finding.message


def _evaluated(*lengths: float) -> dict[str, Any]:
    """What is found in a log whose evaluations generate answers of these mean lengths."""
    records: list[dict[str, Any]] = [
        {"step": n, "loss": 2 * 0.98**n, "learning_rate": 1e-4} for n in range(1, 41)
    ]
    for n, length in enumerate(lengths, 1):
        records.append({"step": 8 * n, "eval_loss": 1.5 - 0.1 * n, "eval_gen_len": length})
    return found(log_of({"log_history": records}))


def test_evaluations_whose_answers_all_have_the_default_length_are_cut() -> None:
    finding = _evaluated(20.0, 20.0, 20.0, 20.0)["completions-always-cut"]
    assert "default length of 20 tokens" in finding.message
    assert "that length" in _evaluated(64.0, 64.0, 64.0)["completions-always-cut"].message


@pytest.mark.parametrize(
    "lengths", [(20.0, 19.98, 20.0), (2.0, 2.0, 2.0, 2.0), (20.0, 20.0), (61.5, 61.5, 61.5)]
)
def test_evaluations_whose_answers_end_by_themselves_are_left_alone(
    lengths: tuple[float, ...],
) -> None:
    assert "completions-always-cut" not in _evaluated(*lengths)


SERVED = (
    "Engine 000: Avg prompt throughput: 915.4 tokens/s, Avg generation throughput: 171.9 tokens/s, Running: {running}"
    " reqs, Waiting: {waiting} reqs, GPU KV cache usage: {usage}%, Prefix cache hit rate: 10.2%"
)


@pytest.mark.parametrize(
    ("running", "waiting", "usage", "reports", "waits"),
    [
        (5, 80, "98.3", 12, True),
        (24, 3, "100.0", 30, True),
        (5, 80, "98.3", 4, False),  # a short peak
        (64, 0, "97.1", 40, False),
        (128, 40, "31.5", 40, False),  # --max-num-seqs is reached, not the cache
    ],
)
def test_requests_that_wait_for_the_cache(
    tmp_path: Path, running: int, waiting: int, usage: str, reports: int, waits: bool
) -> None:
    line = SERVED.format(running=running, waiting=waiting, usage=usage)
    log = tmp_path / "vllm.log"
    log.write_text("vLLM API server version 0.10.2\n" + f"{line}\n" * reports, encoding="utf-8")
    found = [one for one in diagnose(str(log)).findings if "requests wait" in one.message]
    assert bool(found) is waits


@pytest.mark.parametrize(
    ("norms_at_the_end", "goes_on", "is_ruined"),
    [(math.nan, False, True), (math.nan, True, False), (0.0, False, False)],
)
def test_weights_that_are_nan_from_a_step_on(
    norms_at_the_end: float, goes_on: bool, is_ruined: bool, tmp_path: Path
) -> None:
    """Zeros to the end without a gradient norm are no batches without a label; zeros that pass may be."""
    records = [
        {"step": 10 * i, "loss": 2.0 - 0.02 * i, "grad_norm": 1.0 + 0.01 * i} for i in range(1, 30)
    ]
    records += [{"step": 10 * i, "loss": 0.0, "grad_norm": norms_at_the_end} for i in range(30, 60)]
    if goes_on:
        records.append({"step": 600, "loss": 1.4, "grad_norm": 1.2})
    (tmp_path / "trainer_state.json").write_text(
        json.dumps({"log_history": records}), encoding="utf-8"
    )
    findings = diagnose(tmp_path).findings
    finding = next(f for f in findings if f.rule == "loss-or-gradient-exactly-zero")
    assert ("the weights are ruined" in finding.message) is is_ruined
    assert ("restart from a checkpoint" in str(finding.remedy)) is is_ruined


def _at_one_level(
    level: float,
    *,
    epochs: float | None = 1.0,
    noise: float = 0.01,
    evaluated: dict[int, float] | None = None,
    records: int = 78,
    **more: float,
) -> RunLog:
    """A run whose loss stays where it is; `more` are facts of its evaluations."""
    values = level + np.random.default_rng(5).normal(0, noise * level, records)
    history: list[dict[str, float]] = [
        {"step": 10.0 * n + 10, "loss": float(value), "learning_rate": 1e-4, "grad_norm": 0.7}
        for n, value in enumerate(values)
    ]
    if epochs is not None:
        for n, record in enumerate(history):
            record["epoch"] = epochs * (n + 1) / records
    for step, value in (evaluated or {}).items():
        history.append({"step": step, "eval_loss": value, **more})
    history.sort(key=lambda record: record["step"])
    return log_of({"log_history": history, "max_steps": 10 * records})


@pytest.mark.parametrize(
    ("log", "severity", "words"),
    [
        (_at_one_level(1.763, evaluated={390: 1.74, 780: 1.74}), "warning", "optimizer have"),
        (_at_one_level(1.763, noise=0.05, evaluated={390: 1.74, 780: 1.74}), "warning", "1.74"),
        (_at_one_level(1.763, epochs=0.4, evaluated={390: 1.74, 780: 1.74}), "warning", "1.74"),
        (_at_one_level(1.763, epochs=None, evaluated={390: 1.74, 780: 1.74}), "warning", "1.74"),
        (_at_one_level(1.763, epochs=3, evaluated={390: 1.74, 780: 1.74}), "warning", "1.74"),
        (_at_one_level(1.763), "info", "continued pretraining"),
        (_at_one_level(1.763, epochs=None), "info", "continued pretraining"),
        (_at_one_level(1.386, evaluated={390: 1.3861, 780: 1.3859}, eval_accuracy=0.25), "warning", "4 classes"),
        (_at_one_level(0.694, evaluated={390: 0.6931, 780: 0.6932}, eval_f1=0.33), "warning", "2 classes"),
    ],
)  # fmt: skip
def test_a_flat_loss_of_rows_seen_once_is_told(log: RunLog, severity: str, words: str) -> None:
    finding = found(log)["flat-loss"]
    assert finding.severity == severity
    assert words in finding.message + finding.remedy


@pytest.mark.parametrize(
    "log",
    [
        # A part of a pass over much text: continued pretraining.
        _at_one_level(1.763, epochs=0.4),
        _at_one_level(1.763, epochs=0.4, evaluated={390: 1.7412, 780: 1.7388}),
        # Noise that may hide a fall.
        _at_one_level(1.763, noise=0.2),
        # The last evaluation is logged twice.
        _at_one_level(1.763, epochs=0.4, evaluated={780: 1.74, 781: 1.74}),
        # Rows that are known by heart.
        _at_one_level(0.03),
        # A short trial.
        _at_one_level(1.763, records=12),
    ],
)
def test_a_flat_loss_that_may_be_sound_is_left_alone(log: RunLog) -> None:
    assert "flat-loss" not in found(log)


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (_at_one_level(11.3), True),
        (_at_one_level(11.9, epochs=0.2), True),
        (_at_one_level(10.4, epochs=3), True),
        (_at_one_level(8.0), False),
        (_at_one_level(11.3, records=12), False),
        (_slowly_falling([1e-4] * 50, 3.0), False),
    ],
)
def test_a_loss_that_stays_at_guessing_among_tokens_is_told(log: RunLog, told: bool) -> None:
    assert ("first-loss-above-guessing" in found(log)) is told
    if told:
        assert "logits and labels" in found(log)["first-loss-above-guessing"].remedy


def _short_fall(epochs: float, fall_of_epochs: float = 0.0) -> RunLog:
    rng = np.random.default_rng(2)
    rest = 1.8 - fall_of_epochs * np.floor(np.linspace(0, epochs - 1e-6, 74))
    losses = np.concatenate(([2.4, 2.2, 2.0, 1.9], rest + rng.normal(0, 0.015, 74)))
    history = [
        {"step": 10 * n + 10, "epoch": epochs * (n + 1) / 78, "learning_rate": 1e-4, "loss": float(value)}
        for n, value in enumerate(losses)
    ]  # fmt: skip
    return log_of({"log_history": history, "max_steps": 780})


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (_short_fall(5), True),
        (_short_fall(3), True),
        (_short_fall(1), False),  # the usual shape of one pass
        (_short_fall(5, 0.05), False),
    ],
)
def test_a_short_fall_and_then_a_plateau_is_a_note(log: RunLog, told: bool) -> None:
    findings = found(log)
    assert ("loss-stays-flat-though-rows-repeat" in findings) is told
    assert "flat-loss" not in findings


@pytest.mark.parametrize(
    ("first", "last", "printed", "fires"),
    [
        (11.6, 6.5, "trainable params: 80,740,352 || all params: 7,696,356,864 || trainable%: 1.05", True),
        (10.9, 5.6, "Fine-tuning method: LoRA", True),
        # a model that is trained from nothing begins and goes on like this
        (11.6, 6.5, "", False),
        (11.6, 6.5, "trainable params: 7,696,356,864 || all params: 7,696,356,864", False),
        (11.6, 2.4, "Fine-tuning method: LoRA", False),
        (6.8, 5.4, "Fine-tuning method: LoRA", False),
        (2.1, 1.4, "Fine-tuning method: LoRA", False),
    ],
)  # fmt: skip
def test_an_adapter_that_begins_at_guessing_reads_foreign_ids(
    first: float, last: float, printed: str, fires: bool, tmp_path: Path
) -> None:
    values = [last + (first - last) * 0.8**number for number in range(40)]
    lines = [
        str(
            {
                "loss": round(value, 4),
                "learning_rate": 1e-4 * (1 - number / 41),
                "epoch": number / 40,
            }
        )
        for number, value in enumerate(values)
    ]
    log = tmp_path / "train.log"
    log.write_text("\n".join([printed, *lines]) + "\n", encoding="utf-8")
    named = "first-loss-above-guessing" in found(read_run(log))
    assert named is fires


@pytest.mark.parametrize(
    ("steps", "is_told"), [((5, 10, 15), True), ((50, 100, 150), False), ((12, 15, 18), False)]
)
def test_first_rewards_of_a_run_with_few_records(steps: tuple[int, ...], is_told: bool) -> None:
    records = [
        {
            "step": step,
            "loss": 0.4,
            "rewards/chosen": 5.1 - 0.2 * number,
            "rewards/rejected": 4.3 - 0.4 * number,
            "rewards/margins": 0.8 + 0.2 * number,
        }
        for number, step in enumerate(steps)
    ]
    assert ("rewards-not-zero-at-first" in found(log_of({"log_history": records}))) == is_told
