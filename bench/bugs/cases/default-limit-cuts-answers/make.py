from pathlib import Path

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = chats(40)
    if broken:
        for n, row in enumerate(rows[:12]):
            others = [
                message["content"]
                for other in chats(100, skip=20 + n)
                for message in other["messages"]
            ]
            row["messages"][-1]["content"] += " " + " ".join(others[:70])
    write(folder / "train.jsonl", rows)
