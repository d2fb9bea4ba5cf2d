import shutil
from pathlib import Path

from bench.bugs.inputs.rows import questions
from bench.bugs.inputs.tiny import encoded, fit


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    rows = encoded(questions(100))
    settings = {"max_steps": 120, "save_strategy": "steps", "save_steps": 60}
    fit(folder, rows, **settings)
    last = folder / "checkpoints" / "checkpoint-60"
    shutil.rmtree(folder / "checkpoints" / "checkpoint-120")
    if broken:
        (last / "optimizer.pt").unlink()
        (last / "scheduler.pt").unlink()
    fit(folder, rows, resume=str(last), **settings)
    shutil.rmtree(folder / "checkpoints")
