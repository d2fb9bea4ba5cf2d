import csv
import random
from pathlib import Path

from bench.starts.material import instructions

REFUSAL = "I'm sorry, but I can't help with that request."


def make(folder: Path) -> None:
    """Preferences whose rejected side is one refusal in all rows."""
    rows = [
        (row["instruction"] + ("\n" + row["input"] if row["input"] else ""), row["output"], REFUSAL)
        for row in instructions()
        if 60 < len(row["output"]) < 420 and len(row["instruction"] + row["input"]) < 300
    ]
    random.Random(31337).shuffle(rows)
    with (folder / "preferences.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("question", "chosen", "rejected"), *rows[:170]])
