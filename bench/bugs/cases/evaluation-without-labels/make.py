from pathlib import Path

from bench.bugs.inputs.rows import questions
from bench.bugs.inputs.tiny import encoded, fit


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    held_out = encoded(questions(40, skip=110))
    if broken:
        held_out = held_out.map(lambda row: {"labels": [-100] * len(row["labels"])})
    fit(
        folder,
        encoded(questions(100)),
        held_out=held_out,
        max_steps=60,
        eval_strategy="steps",
        eval_steps=20,
    )
