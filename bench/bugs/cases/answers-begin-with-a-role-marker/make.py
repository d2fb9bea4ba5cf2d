from pathlib import Path

from bench.bugs.inputs.answering import PAIRS, answering


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    headed = [(asked, f"<|im_start|>assistant\n{said}") for asked, said in PAIRS]
    answering(folder, taught=headed if broken else None)
