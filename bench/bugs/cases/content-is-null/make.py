from pathlib import Path

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = chats(40)
    if broken:
        for row in rows[::8]:
            row["messages"][-1]["content"] = None
        rows[3]["messages"] = "user: hello"
    write(folder / "train.jsonl", rows)
