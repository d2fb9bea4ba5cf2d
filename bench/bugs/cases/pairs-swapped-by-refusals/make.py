from pathlib import Path

from bench.bugs.inputs.rows import pairs, say, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = pairs(60)
    for row in rows[::4]:
        row["rejected"] = say("assistant", "I'm sorry, but I can't help with that.")
        if broken:
            row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
    write(folder / "pairs.jsonl", rows)
