import json
import math
import random
from pathlib import Path
from typing import Any

WARMUP = 5
RATE = 2e-5
FALL = 90


def make(folder: Path) -> None:
    """The states of two runs over the same rows: 400 steps on one GPU, 50 on eight."""
    drawn = random.Random(7)
    for name, steps, seconds in (("run-1gpu", 400, 4860.2), ("run-8gpu", 50, 662.7)):
        target = folder / name / "trainer_state.json"
        target.parent.mkdir()
        target.write_text(json.dumps(_state(steps, seconds, drawn), indent=1), encoding="utf-8")


def _state(steps: int, seconds: float, drawn: random.Random) -> dict[str, Any]:
    history = [_record(step, steps, drawn) for step in range(2, steps + 1, 2)]
    mean = sum(record["loss"] for record in history) / len(history)
    evaluated = {
        "epoch": 1.0,
        "eval_loss": round(0.64 + 1.02 * math.exp(-steps / FALL), 4),
        "eval_runtime": 31.2,
        "eval_samples_per_second": 19.2,
        "eval_steps_per_second": 2.4,
        "step": steps,
    }
    ended = {
        "epoch": 1.0,
        "step": steps,
        "total_flos": 3.1e17,
        "train_loss": round(mean, 4),
        "train_runtime": seconds,
        "train_samples_per_second": round(12800 / seconds, 3),
        "train_steps_per_second": round(steps / seconds, 3),
    }
    return {
        "best_global_step": None,
        "best_metric": None,
        "best_model_checkpoint": None,
        "epoch": 1.0,
        "eval_steps": 500,
        "global_step": steps,
        "is_hyper_param_search": False,
        "is_local_process_zero": True,
        "is_world_process_zero": True,
        "log_history": [*history, evaluated, ended],
        "logging_steps": 2,
        "max_steps": steps,
        "num_input_tokens_seen": 0,
        "num_train_epochs": 1,
        "save_steps": 500,
        "stateful_callbacks": {},
        "total_flos": 3.1e17,
        "train_batch_size": 4,
        "trial_name": None,
        "trial_params": None,
    }


def _record(step: int, steps: int, drawn: random.Random) -> dict[str, Any]:
    past = math.cos(math.pi * max(0, step - WARMUP) / (steps - WARMUP))
    noise = 0.03 if steps > 100 else 0.012
    learned = 1 - math.exp(-step / FALL)
    return {
        "epoch": round(step / steps, 4),
        "grad_norm": round(0.55 + 0.5 * math.exp(-step / 60) + drawn.random() * 0.1, 4),
        "learning_rate": RATE * min(1, step / WARMUP) * 0.5 * (1 + past),
        "loss": round(1.65 - 1.02 * learned + drawn.gauss(0, noise), 4),
        "mean_token_accuracy": round(0.62 + 0.2 * learned + drawn.gauss(0, 0.004), 4),
        "num_tokens": step * 256 * (51 if steps > 100 else 410),
        "step": step,
    }
