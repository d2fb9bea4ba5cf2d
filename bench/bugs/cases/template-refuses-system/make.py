from pathlib import Path

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = chats(60)
    if not broken:
        for row in rows:
            row["messages"] = [
                message for message in row["messages"] if message["role"] != "system"
            ]
    write(folder / "train.jsonl", rows)
