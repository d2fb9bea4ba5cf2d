from pathlib import Path

from bench.bugs.inputs.rows import chats, write
from bench.bugs.inputs.tokenizers import chatml, templated


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = chats(40)
    for row in rows:
        for message in row["messages"]:
            if message["role"] == "assistant":
                first = message["content"].partition(". ")[0]
                message["content"] = (
                    f"<think>\nThey want to know this: {first}.\n</think>\n\n{message['content']}"
                )
    write(folder / "train.jsonl", rows)
    stripped = (
        "message['content'] if loop.last else message['content'].split('</think>')[-1].lstrip()"
    )
    templated(tokenizer, folder / "tokenizer", chatml(content=stripped) if broken else chatml())
