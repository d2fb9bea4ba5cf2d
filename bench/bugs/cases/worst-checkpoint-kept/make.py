import shutil
from pathlib import Path

from bench.bugs.inputs.rows import questions
from bench.bugs.inputs.tiny import encoded, fit


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    pairs = questions(150)
    settings = {
        "eval_strategy": "steps",
        "eval_steps": 20,
        "save_strategy": "steps",
        "save_steps": 20,
        "load_best_model_at_end": True,
    }
    fit(
        folder,
        encoded(pairs[:110]),
        held_out=encoded(pairs[110:]),
        max_steps=100,
        metric_for_best_model="eval_loss",
        greater_is_better=broken,
        **settings,
    )
    shutil.rmtree(folder / "checkpoints")
