from pathlib import Path

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = [row for row in chats(150) if len(row["messages"]) <= 3][:40]
    if broken:
        for n, row in enumerate(rows[:5]):
            others = [
                message["content"]
                for other in chats(100, skip=20 + n)
                for message in other["messages"]
            ]
            row["messages"][-2]["content"] += " " + " ".join(others[:40])
    write(folder / "train.jsonl", rows)
