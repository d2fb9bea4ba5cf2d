from pathlib import Path

from bench.bugs.inputs.answering import PAIRS, answering


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    following = [f" {asked} {said}" for asked, said in PAIRS[1:] + PAIRS[:1]]
    joined = [
        (asked, said + more + more) for (asked, said), more in zip(PAIRS, following, strict=True)
    ]
    answering(folder, taught=joined if broken else None)
