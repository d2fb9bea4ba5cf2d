import json
import random
from pathlib import Path

from bench.starts.material import preferences, write_lines


def make(folder: Path) -> None:
    """Pairs whose sides hold the prompt, which has a column of its own too."""
    pairs = sorted(preferences(), key=lambda row: len(json.dumps(row)))
    sides = [
        (
            f"### Instruction:\n{row['conversations'][0]['value'].strip()}\n\n### Response:\n",
            row["chosen"]["value"].strip(),
            row["rejected"]["value"].strip(),
        )
        for row in pairs
        if len(row["conversations"]) == 1
    ]
    rows = [
        {"prompt": prompt, "chosen": prompt + better, "rejected": prompt + worse}
        for prompt, better, worse in sides
        if better != worse
    ][:60]
    random.Random(31337).shuffle(rows)
    write_lines(folder / "pairs.jsonl", rows[:25])
