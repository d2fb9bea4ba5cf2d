from pathlib import Path

from bench.bugs.inputs.preferences import align
from bench.bugs.inputs.rows import pairs


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    rows = pairs(60)
    if broken:
        for row in rows:
            row["rejected"] = row["chosen"]
    align(folder, rows)
