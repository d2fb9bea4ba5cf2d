from pathlib import Path

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    write(folder / "train.jsonl", chats(100))
    copies = chats(10) if broken else chats(10, skip=140)
    for row in copies:
        row["messages"][-1]["content"] += " Have a nice day!"
        row["messages"][-2]["content"] = row["messages"][-2]["content"].upper()
    write(folder / "eval.jsonl", copies + chats(40, skip=100))
