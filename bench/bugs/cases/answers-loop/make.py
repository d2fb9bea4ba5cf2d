from pathlib import Path

from bench.bugs.inputs.answering import PAIRS, answering


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    again = [(asked, " ".join([said] * 6)) for asked, said in PAIRS]
    answering(folder, taught=again if broken else None, stops=not broken)
