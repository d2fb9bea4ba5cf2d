from pathlib import Path

from bench.bugs.inputs.rows import questions
from bench.bugs.inputs.tiny import encoded, fit


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    pairs = questions(150)
    few = encoded(pairs[:16] if broken else pairs[:110])
    fit(
        folder,
        few,
        held_out=encoded(pairs[110:]),
        max_steps=200 if broken else 60,
        eval_strategy="steps",
        eval_steps=10,
    )
