from pathlib import Path

from bench.bugs.inputs.rows import chats, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    end = {
        "qwen2.5-instruct": "<|im_end|>",
        "llama3.1-instruct": "<|eot_id|>",
        "gemma3": "<end_of_turn>",
    }[tokenizer.name]
    rows = chats(40)
    if broken:
        for row in rows:
            row["messages"][-1]["content"] += end
    write(folder / "train.jsonl", rows)
