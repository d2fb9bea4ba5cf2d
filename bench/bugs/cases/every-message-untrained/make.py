from pathlib import Path

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = chats(40)
    for n, row in enumerate(rows):
        for message in row["messages"]:
            message["train"] = message["role"] == "assistant" and not (broken and n % 3 == 0)
    write(folder / "train.jsonl", rows)
