from pathlib import Path

from bench.bugs.inputs.rows import pairs, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = pairs(60)
    if broken:
        for row in rows[::5]:
            row["rejected"] = row["chosen"]
    write(folder / "pairs.jsonl", rows)
