import random
from pathlib import Path

from datasets import Dataset

from bench.bugs.inputs.tiny import fit, model
from bench.bugs.inputs.tiny import tokenizer as tok


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    rng = random.Random(0)
    size = len(tok())
    ids = [[rng.randrange(4, size) for _ in range(48)] for _ in range(4000)]
    rows = Dataset.from_list(
        [{"input_ids": row, "labels": [-100, *row[:-1]] if broken else row} for row in ids]
    )
    fit(folder, rows, net=model(tie_word_embeddings=True), max_steps=450, learning_rate=1e-2)
