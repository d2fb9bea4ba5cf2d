from pathlib import Path

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    write(folder / "train.jsonl", chats(100))
    asked = chats(10) if broken else chats(10, skip=140)
    for row, other in zip(asked, chats(10, skip=120), strict=True):
        row["messages"][-1]["content"] = other["messages"][-1]["content"]
    write(folder / "eval.jsonl", asked + chats(20, skip=100))
