from pathlib import Path

from bench.bugs.inputs.preferences import align
from bench.bugs.inputs.rows import pairs


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    rows = pairs(120)
    for row in rows:
        if broken:
            row["chosen"][0]["content"] = row["chosen"][0]["content"].split()[0]
    align(folder, rows, learning_rate=3e-3, per_device_train_batch_size=4, logging_steps=1)
