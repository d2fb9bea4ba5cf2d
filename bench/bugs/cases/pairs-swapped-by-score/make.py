from pathlib import Path

from bench.bugs.inputs.rows import pairs, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = pairs(60)
    for n, row in enumerate(rows):
        high, low = 8.0 + n % 3, 2.0 + n % 4
        row["score_chosen"], row["score_rejected"] = (low, high) if broken else (high, low)
    write(folder / "pairs.jsonl", rows)
