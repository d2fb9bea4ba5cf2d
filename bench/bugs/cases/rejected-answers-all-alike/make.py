from pathlib import Path

from bench.bugs.inputs.rows import pairs, say, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = pairs(120)
    if broken:
        for n, row in enumerate(rows):
            row["rejected"] = say(
                "assistant",
                (
                    "As an AI language model, I do not know about orders.",
                    "No idea, ask somebody else.",
                )[n % 2],
            )
    write(folder / "pairs.jsonl", rows)
