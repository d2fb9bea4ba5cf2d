from pathlib import Path

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = chats(40, system=False)
    if broken:
        for row in rows[::4]:
            at = next(n for n, message in enumerate(row["messages"]) if message["role"] == "user")
            row["messages"].insert(at, {"role": "user", "content": "Hello!"})
    write(folder / "train.jsonl", rows)
