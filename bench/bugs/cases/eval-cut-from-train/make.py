from pathlib import Path

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    write(folder / "train.jsonl", chats(100) if broken else chats(80, skip=20))
    write(folder / "eval.jsonl", chats(20))
