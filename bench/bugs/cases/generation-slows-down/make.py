from pathlib import Path

from bench.bugs.inputs.answering import answering


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    answering(folder, generation={"use_cache": not broken})
