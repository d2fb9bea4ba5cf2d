from pathlib import Path

from bench.bugs.inputs.rows import pairs, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    rows = pairs(120)
    if broken:
        for row in rows:
            row["chosen"], row["rejected"] = sorted(
                (row["chosen"], row["rejected"]), key=lambda side: len(side[0]["content"])
            )
    write(folder / "pairs.jsonl", rows)
