from pathlib import Path

from bench.bugs.inputs.rows import pairs, say, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = pairs(60)
    if broken:
        for row in rows[::2]:
            row["rejected"] = say("assistant", row["chosen"][0]["content"] + " ")
    write(folder / "pairs.jsonl", rows)
