from pathlib import Path

from bench.bugs.inputs.rows import pairs, say, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    bos = {"llama3.1-instruct": "<|begin_of_text|>", "gemma3": "<bos>", "mistral-nemo": "<s>"}[
        tokenizer.name
    ]
    rows = [
        {
            "prompt": row["prompt"],
            **{
                side: say("assistant", (bos if broken else "") + row[side][0]["content"])
                for side in ("chosen", "rejected")
            },
        }
        for row in pairs(60)
    ]
    write(folder / "pairs.jsonl", rows)
