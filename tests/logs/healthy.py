"""Logs of healthy runs of random shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Record = dict[str, Any]
State = dict[str, Any]
Rng = np.random.Generator

SCHEDULES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "constant": np.ones_like,
    "linear": lambda x: 1 - x,
    "cosine": lambda x: 0.5 * (1 + np.cos(np.pi * x)),
    "cosine-floor": lambda x: 0.1 + 0.45 * (1 + np.cos(np.pi * x)),
    "wsd": lambda x: np.clip((1 - x) / 0.2, 0, 1),
    "restarts": lambda x: np.where(x >= 1, 0, 0.5 * (1 + np.cos(np.pi * ((3 * x) % 1)))),
    "inverse-sqrt": lambda x: 1 / np.sqrt(1 + 20 * x),
    "polynomial": lambda x: (1 - x) ** 3,
}


def healthy(seed: int) -> State:
    """The content of a trainer_state.json of a run with which all is well."""
    rng = np.random.default_rng(seed)
    shape = rng.choice(
        ["sft", "lora", "pretrain", "dpo", "kto", "tiny", "memorise", "reward", "grpo"], p=SHARES
    )
    return {"dpo": preferences, "kto": preferences, "grpo": reinforcement, "reward": reward}.get(
        shape, language
    )(rng, shape)


SHARES = [0.25, 0.15, 0.12, 0.13, 0.05, 0.12, 0.08, 0.05, 0.05]


def language(rng: Rng, shape: str) -> State:
    """SFT, LoRA, pretraining-like, tiny and memorising runs."""
    steps = {"tiny": int(rng.integers(3, 12)), "pretrain": int(rng.integers(300, 10_000))}.get(
        shape, int(np.exp(rng.uniform(np.log(20), np.log(3_000))))
    )
    epochs = {
        "pretrain": rng.uniform(0.1, 1),
        "memorise": rng.uniform(10, 60),
        "tiny": rng.uniform(0.5, 3),
    }.get(shape, rng.choice([1, 1, 2, 3, 5]))
    x = np.arange(1, steps + 1) / steps
    start = rng.uniform(0.6, 3.5)
    if shape == "memorise":
        curve = start * np.exp(-x * rng.uniform(3, 7)) + rng.uniform(0.001, 0.02)
    elif shape == "pretrain":
        curve = start * (1 - rng.uniform(0, 0.05) * x)
    else:
        drop = rng.uniform(0.1, 0.5)
        curve = start * (1 - drop * (1 - np.exp(-x * rng.uniform(2, 15))))
        curve *= 1 - rng.uniform(0.05, 0.3) * np.floor(np.minimum(x * epochs, epochs - 1e-9)) / max(
            epochs, 1
        )
    if shape == "lora":
        norm = rng.uniform(0.1, 2) * (1 + rng.uniform(0, 2) * x)
    else:
        norm = rng.uniform(0.2, 8) * np.exp(-rng.uniform(0, 1) * x)
    level = rng.choice([0.01, 0.03, 0.1, 0.25]) if shape != "memorise" else rng.choice([0.01, 0.1])
    loss = curve * np.exp(rng.normal(0, level, steps))
    if rng.random() < 0.3:
        hard = rng.random(steps) < 0.01
        loss[hard] *= rng.uniform(1.2, 2.2, hard.sum())
    norm = norm * np.exp(rng.normal(0, rng.choice([0.1, 0.4]), steps))
    odd = rng.random(steps) < rng.choice([0, 0.005])
    norm[odd] *= rng.uniform(2, 30, odd.sum())
    state = logged(
        rng,
        {
            "loss": loss,
            "grad_norm": norm,
            "epoch": x * epochs,
            "learning_rate": schedule(rng, steps),
        },
    )
    if rng.random() < 0.5 and steps > 20:
        evaluate(rng, state, curve, epochs)
    return state


def schedule(rng: Rng, steps: int) -> np.ndarray:
    """A learning rate with or without warm-up."""
    warm = int(steps * rng.choice([0, 0.03, 0.1]))
    name = rng.choice(list(SCHEDULES))
    rate = SCHEDULES[name](np.arange(max(1, steps - warm)) / max(1, steps - warm))
    return (
        rng.choice([1e-6, 2e-5, 2e-4, 1e-3])
        * np.concatenate((np.arange(warm) / max(1, warm), rate))[:steps]
    )


def logged(rng: Rng, curves: dict[str, np.ndarray], window: int | None = None) -> State:
    """Records every so many steps: the loss as a mean over them, the rest as it was last."""
    steps = curves["loss"].size
    window = window or int(rng.choice([1, 1, 5, 10] if steps > 40 else [1]))
    digits = int(rng.choice([4, 12]))
    history = []
    for end in range(window, steps + 1, window):
        record = {name: float(values[end - 1]) for name, values in curves.items()}
        record["loss"] = round(float(curves["loss"][end - window : end].mean()), digits)
        history.append({**record, "step": end})
    return {"max_steps": steps, "logging_steps": window, "log_history": history}


def evaluate(rng: Rng, state: State, curve: np.ndarray, epochs: float) -> None:
    """Evaluations whose loss comes down or flattens; perhaps with a best checkpoint kept."""
    steps = curve.size
    every = max(1, int(steps / rng.choice([3, 5, 10, 20])))
    gap = rng.uniform(0.98, 1.15)
    half = curve[0] - (curve[0] - curve) * rng.uniform(0.5, 1)
    points = [
        (end, float(gap * half[end - 1] * np.exp(rng.normal(0, 0.003))))
        for end in range(every, steps + 1, every)
    ]
    state["log_history"] += [
        {"step": end, "eval_loss": v, "eval_runtime": 1.0, "epoch": end / steps * epochs}
        for end, v in points
    ]
    state["log_history"].sort(key=lambda record: record["step"])
    if rng.random() < 0.5:
        best = min(points, key=lambda point: point[1])
        state |= {
            "best_metric": best[1],
            "best_global_step": best[0],
            "best_model_checkpoint": f"out/checkpoint-{best[0]}",
        }


def preferences(rng: Rng, shape: str) -> State:
    """DPO and KTO runs: margins grow, some of the chosen log-probability is lost."""
    steps = int(np.exp(rng.uniform(np.log(5), np.log(2_000))))
    epochs = float(rng.choice([1, 1, 2, 3]))
    x = np.arange(1, steps + 1) / steps
    margin = rng.uniform(0.2, 3) * (1 - np.exp(-x * rng.uniform(1, 6)))
    spread = rng.uniform(0.05, 0.3)
    margins = margin + rng.normal(0, spread, steps) * margin
    margins[0] = 0
    chosen = (
        -rng.uniform(60, 400)
        * (1 + rng.uniform(-0.02, 0.1) * x)
        * np.exp(rng.normal(0, 0.1, steps))
    )
    rejected = (
        -rng.uniform(60, 400) * (1 + rng.uniform(0, 0.5) * x) * np.exp(rng.normal(0, 0.1, steps))
    )
    curves = {
        "loss": np.log1p(np.exp(-margins)) * rng.uniform(0.98, 1.02, steps),
        "rewards/margins": margins,
        "rewards/chosen": margins / 2,
        "rewards/rejected": -margins / 2,
        "logps/chosen": chosen,
        "logps/rejected": rejected,
        "grad_norm": rng.uniform(0.5, 20) * np.exp(rng.normal(0, 0.2, steps)),
        "learning_rate": schedule(rng, steps),
        "epoch": x * epochs,
    }
    if shape == "dpo":
        right = np.minimum(0.5 + 0.35 * (1 - np.exp(-x * 5)), 0.92)
        curves["rewards/accuracies"] = rng.binomial(16, right) / 16
    return logged(rng, curves)


def reward(rng: Rng, shape: str) -> State:
    """A reward model."""
    steps = int(rng.integers(20, 500))
    x = np.arange(1, steps + 1) / steps
    curves = {
        "loss": 0.69 - 0.3 * x + rng.normal(0, 0.05, steps),
        "accuracy": np.clip(0.5 + 0.3 * x + rng.normal(0, 0.1, steps), 0, 1),
        "min_reward": -x,
        "max_reward": x,
        "margin": x + rng.normal(0, 0.1, steps),
        "grad_norm": rng.uniform(1, 5, steps),
        "learning_rate": schedule(rng, steps),
        "epoch": x,
    }
    return logged(rng, curves)


def reinforcement(rng: Rng, shape: str) -> State:
    """GRPO: the loss begins at exactly 0 and grows, gradients are 0 where all answers are alike."""
    steps = int(rng.integers(20, 500))
    x = np.arange(1, steps + 1) / steps
    norm = rng.uniform(0.1, 1, steps)
    norm[rng.random(steps) < 0.1] = 0
    curves = {
        "loss": np.where(x < 0.1, 0, x * 0.01 + rng.normal(0, 0.01, steps)),
        "reward": x + rng.normal(0, 0.1, steps),
        "completions/mean_length": rng.uniform(100, 200, steps),
        "kl": x * 0.1,
        "grad_norm": norm,
        "learning_rate": schedule(rng, steps),
        "epoch": x,
    }
    return logged(rng, curves, 1)
