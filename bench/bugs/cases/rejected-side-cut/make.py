from pathlib import Path

from bench.bugs.inputs.rows import chats, pairs, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = pairs(60)
    long = " ".join(
        message["content"] for row in chats(40, skip=100) for message in row["messages"]
    )
    for row in rows[::4]:
        if broken:
            row["rejected"][0]["content"] += " " + long
    write(folder / "pairs.jsonl", rows)
