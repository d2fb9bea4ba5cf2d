from pathlib import Path

from bench.bugs.inputs.rows import questions
from bench.bugs.inputs.tiny import encoded, fit


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    fit(folder, encoded(questions(64)), max_steps=120, learning_rate=1e-9 if broken else 3e-3)
