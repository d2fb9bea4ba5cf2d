from pathlib import Path

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = chats(150)
    rows = [row for row in rows if (len(row["messages"]) > 3) == broken][:30]
    for row in rows:
        for message in row["messages"]:
            if message["role"] == "assistant":
                first = message["content"].partition(". ")[0]
                message["content"] = (
                    f"<think>\nThey want to know this: {first}.\n</think>\n\n{message['content']}"
                )
    write(folder / "train.jsonl", rows)
