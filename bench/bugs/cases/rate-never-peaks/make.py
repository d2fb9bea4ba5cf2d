from pathlib import Path

from bench.bugs.inputs.rows import questions
from bench.bugs.inputs.tiny import encoded, fit


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    fit(folder, encoded(questions(100)), max_steps=40, warmup_steps=500 if broken else 4)
