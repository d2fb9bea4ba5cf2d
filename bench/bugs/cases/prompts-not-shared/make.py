from pathlib import Path

from bench.bugs.inputs.rows import pairs, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = []
    for row, other in zip(pairs(60), pairs(67)[7:], strict=True):
        asked = other["prompt"] if broken else row["prompt"]
        rows.append({"chosen": row["prompt"] + row["chosen"], "rejected": asked + row["rejected"]})
    write(folder / "pairs.jsonl", rows)
