from pathlib import Path

from bench.bugs.inputs.preferences import align
from bench.bugs.inputs.rows import pairs


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    align(folder, pairs(60), learning_rate=0.05 if broken else 1e-3)
