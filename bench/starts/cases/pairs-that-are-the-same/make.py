import json
from pathlib import Path


def make(folder: Path) -> None:
    with (folder / "pairs.jsonl").open("w", encoding="utf-8") as file:
        for number in range(60):
            good = (
                f"Number {number} is {'even' if number % 2 == 0 else 'odd'}, which its last digit"
                " shows."
            )
            bad = good if number % 3 else "I do not know."
            row = {"prompt": f"Is {number} even or odd?", "chosen": good, "rejected": bad}
            file.write(json.dumps(row) + "\n")
