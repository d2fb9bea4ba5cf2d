from pathlib import Path

from bench.bugs.inputs.rows import questions
from bench.bugs.inputs.tiny import encoded, fit


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    rows = encoded(questions(24))
    if broken:
        rows = rows.map(
            lambda row, n: {"labels": [-100] * len(row["labels"])} if n % 4 > 1 else row,
            with_indices=True,
        )
    fit(
        folder,
        rows,
        per_device_train_batch_size=1,
        max_steps=24,
        logging_steps=1,
        train_sampling_strategy="sequential",
    )
