from pathlib import Path

from bench.bugs.inputs.rows import questions
from bench.bugs.inputs.tiny import encoded, fit


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    settings = {"learning_rate": 0.5, "max_grad_norm": 1e9} if broken else {}
    fit(folder, encoded(questions(100)), max_steps=160, lr_scheduler_type="constant_with_warmup", warmup_steps=40, **settings)
