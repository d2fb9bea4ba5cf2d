from pathlib import Path

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    names = {"user": "human", "assistant": "gpt", "system": "system"}
    rows = [
        {
            "conversations": [
                {"from": names[m["role"]], "value": m["content"]} for m in row["messages"]
            ]
        }
        for row in chats(40)
    ]
    if broken:
        for row in rows[::4]:
            row["conversations"][-1]["from"] = "narrator"
    write(folder / "train.jsonl", rows)
