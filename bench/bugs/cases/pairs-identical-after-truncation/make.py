from pathlib import Path

from bench.bugs.inputs.rows import chats, pairs, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = pairs(60)
    long = " ".join(
        message["content"] for row in chats(40, skip=100) for message in row["messages"]
    )
    for row in rows[::3]:
        start = long if broken else ""
        for side in ("chosen", "rejected"):
            row[side][0]["content"] = f"{start} {row[side][0]['content']}".strip()
    write(folder / "pairs.jsonl", rows)
