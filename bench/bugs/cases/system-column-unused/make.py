from pathlib import Path

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = [row for row in chats(150) if row["messages"][0]["role"] == "system"][:40]
    if broken:
        rows = [
            {"context": row["messages"][0]["content"], "messages": row["messages"][1:]}
            for row in rows
        ]
    write(folder / "train.jsonl", rows)
