import shutil
from pathlib import Path

from bench.bugs.inputs.rows import questions
from bench.bugs.inputs.tiny import encoded, fit, model


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    rows = encoded(questions(150) * 3)
    settings = {"max_steps": 240, "save_strategy": "steps", "save_steps": 120}
    fit(folder, rows, **settings)
    last = folder / "checkpoints" / "checkpoint-120"
    if broken:
        model().save_pretrained(last)
    fit(folder, rows, resume=str(last), **settings)
    shutil.rmtree(folder / "checkpoints")
