from pathlib import Path

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = chats(40)
    if broken:
        for row in rows[::5]:
            row["messages"][-1]["role"] = "bot"
    write(folder / "train.jsonl", rows)
