"""Faults put into healthy logs, and how many of them are found: python -m tests.logs.faults [RUNS]

It prints the tables of docs/diagnose.md.
"""

from __future__ import annotations

import copy
import sys
from collections import Counter
from collections.abc import Callable

import numpy as np

from tests.logs.healthy import Record, Rng, State, healthy
from truetune.checks.rule_catalogue import all_rules
from truetune.logs.read_jsonl_csv_json_logs import add_trainer_state
from truetune.logs.run_log import RunLog
from truetune.logs.run_log_builder import RunLogBuilder

Fault = Callable[[Rng, State, list[Record]], None]
"""Spoils a state; the records are those of training, in order."""


def dead_steps(rng: Rng, state: State, train: list[Record]) -> None:
    """A tenth of the records has no label."""
    for record in rng.choice(
        np.array(train, dtype=object), max(2, len(train) // 10), replace=False
    ):
        record |= {"loss": 0.0, "grad_norm": 0.0}


def not_a_number(rng: Rng, state: State, train: list[Record]) -> None:
    """NaN from some step on."""
    for record in train[int(rng.integers(2, len(train) - 2)) :]:
        record["loss"] = float("nan")


def frozen(rng: Rng, state: State, train: list[Record]) -> None:
    """No gradient, and so no fall."""
    level = train[0]["loss"]
    for record in train:
        record |= {"grad_norm": 0.0, "loss": float(level * np.exp(rng.normal(0, 0.03)))}


def diverged(rng: Rng, state: State, train: list[Record]) -> None:
    """Two to four times the loss from some step on."""
    place, times = int(rng.integers(len(train) // 3, 3 * len(train) // 4)), rng.uniform(2, 4)
    for record in train[place:]:
        record["loss"] *= times


def spiked(rng: Rng, state: State, train: list[Record]) -> None:
    """Four records at three to six times the loss, coming down."""
    place, height = int(rng.integers(len(train) // 4, len(train) - 10)), rng.uniform(3, 6)
    for k, record in enumerate(train[place : place + 4]):
        record["loss"] *= 1 + (height - 1) * 0.7**k
        record["grad_norm"] *= 30


def swinging(rng: Rng, state: State, train: list[Record]) -> None:
    """A swing of a third of the level, with a period of 4 to 8 records."""
    period = int(rng.integers(4, 9))
    for i, record in enumerate(train):
        record["loss"] *= 1 + 0.35 * np.sin(2 * np.pi * i / period)


def warming_up(rng: Rng, state: State, train: list[Record]) -> None:
    """Warm-up longer than the run."""
    for record in train:
        record["learning_rate"] = 1e-4 * record["step"] / (state["max_steps"] * 5)


def ended(rng: Rng, state: State, train: list[Record]) -> None:
    """The rate is 0 after a half, a quarter or an eighth."""
    for record in train[len(train) // int(rng.choice([2, 4, 8])) :]:
        record["learning_rate"] = 0.0


def exploding(rng: Rng, state: State, train: list[Record]) -> None:
    """Gradients grow by 30 to 1000 in the second half."""
    times = np.exp(rng.uniform(np.log(30), np.log(1000)))
    for i, record in enumerate(train):
        record["grad_norm"] *= times ** max(0.0, min(1.0, 4 * i / len(train) - 2))


def overfitted(rng: Rng, state: State, train: list[Record]) -> None:
    """Evaluations fall, then rise by 10 to 50 %."""
    height, low = rng.uniform(0.1, 0.5), rng.uniform(0.2, 0.6)
    state["log_history"] = train
    for x in np.linspace(0.1, 1, 10):
        value = 1.5 * (1 + height * max(0.0, x - low) / (1 - low)) * (1 + 0.3 * max(0.0, low - x))
        state["log_history"].append({"step": int(x * state["max_steps"]), "eval_loss": value})
    for name in ("best_metric", "best_model_checkpoint"):
        state.pop(name, None)


def resumed_without_scheduler(rng: Rng, state: State, train: list[Record]) -> None:
    """Warm-up and decay begin again in the middle."""
    rate = np.interp(np.arange(len(train)) / len(train), [0, 0.05, 1], [0, 1e-4, 0])
    half = int(len(train) * rng.uniform(0.3, 0.7))
    for i, record in enumerate(train):
        record["learning_rate"] = float(rate[i if i < half else i - half])


def resumed_without_weights(rng: Rng, state: State, train: list[Record]) -> None:
    """The loss of a run that halves it begins again in the middle."""
    half = len(train) // 2
    for i, record in enumerate(train):
        x = (i if i < half else i - half) / len(train)
        record["loss"] = float((1 + 2 * np.exp(-8 * x)) * np.exp(rng.normal(0, 0.03)))


def wrong_best(rng: Rng, state: State, train: list[Record]) -> None:
    """The worst evaluation is kept."""
    values = np.linspace(2, 1.5, 5)
    state["log_history"] = train + [
        {"step": int((i + 1) / 5 * state["max_steps"]), "eval_loss": float(v)}
        for i, v in enumerate(values)
    ]
    state |= {"best_metric": 2.0, "best_global_step": state["max_steps"] // 5}


def summed(rng: Rng, state: State, train: list[Record]) -> None:
    """Eight times the loss of an untrained model."""
    times = 8 * 11 / train[0]["loss"]
    for record in train:
        record["loss"] *= times


FAULTS: dict[str, tuple[Fault, str]] = {
    "a tenth of the steps dead": (dead_steps, "loss-or-gradient-exactly-zero"),
    "NaN from a step on": (not_a_number, "loss-not-finite"),
    "nothing trainable": (frozen, "grad-norm-zero"),
    "2 to 4 times the loss from a step on": (diverged, "loss-diverges"),
    "a spike of 3 to 6 times the loss": (spiked, "loss-spikes"),
    "a swing of 35 %": (swinging, "loss-oscillates"),
    "warm-up five times the run": (warming_up, "learning-rate-never-peaked"),
    "rate 0 after 1/2, 1/4, 1/8": (ended, "learning-rate-ended-early"),
    "gradients grow by 30 to 1000": (exploding, "grad-norm-explodes"),
    "eval_loss rises by 10 to 50 %": (overfitted, "eval-loss-rises"),
    "resumed without scheduler": (resumed_without_scheduler, "resume-starts-fresh"),
    "resumed without weights": (resumed_without_weights, "resume-starts-fresh"),
    "worst checkpoint kept": (wrong_best, "best-checkpoint-is-worst"),
    "loss summed": (summed, "first-loss-above-guessing"),
}


def found(state: State) -> set[str]:
    """The rules that fire on a trainer_state.json with this content."""
    log_builder = RunLogBuilder("made", "transformers")
    add_trainer_state(state, log_builder)
    return found_in(log_builder.build())


def found_in(log: RunLog) -> set[str]:
    """The rules that fire on a log."""
    return {finding.rule for rule in all_rules("log") for finding in rule(log).findings()}


def spoiled(seed: int, fault: Fault) -> State | None:
    """A healthy run with a fault in it; None where the run is too short or no language model."""
    state = copy.deepcopy(healthy(seed))
    train = [record for record in state["log_history"] if "loss" in record]
    if (
        len(train) < 40
        or len(train) > 1_000
        or "grad_norm" not in train[0]
        or {"reward", "rewards/margins", "margin"} & train[0].keys()
    ):
        return None
    fault(np.random.default_rng(seed), state, train)
    return state


def main(count: int) -> None:
    """Print the false alarms on so many healthy runs, and the share of faults found in a third of them."""
    alarms: Counter[str] = Counter()
    for seed in range(count):
        alarms.update(found(healthy(seed)))
    print(f"{count} healthy runs, false alarms: {dict(alarms) or 'none'}")
    for name, (fault, rule) in FAULTS.items():
        runs = [
            found(state)
            for seed in range(count // 3)
            if (state := spoiled(seed, fault)) is not None
        ]
        others = Counter(other for run in runs for other in run if other != rule)
        print(
            f"| {name} | {rule} | {sum(rule in run for run in runs)} of {len(runs)} |"
            f" {dict(others)} |"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
