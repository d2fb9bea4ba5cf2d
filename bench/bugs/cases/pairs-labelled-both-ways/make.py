from pathlib import Path

from bench.bugs.inputs.rows import pairs, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = pairs(60)
    swapped = [row | {"chosen": row["rejected"], "rejected": row["chosen"]} for row in rows[:12]]
    write(folder / "pairs.jsonl", rows + (swapped if broken else pairs(72)[60:]))
