from pathlib import Path

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    write(folder / "train.jsonl", chats(100))
    write(folder / "eval.jsonl", chats(4) + chats(36, skip=100) if broken else chats(40, skip=100))
