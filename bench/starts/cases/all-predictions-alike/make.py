import json
from pathlib import Path


def make(folder: Path) -> None:
    with (folder / "preds.jsonl").open("w", encoding="utf-8") as file:
        for step in (100, 200, 300):
            for number in range(10):
                row = {
                    "step": step,
                    "prompt": (
                        f"Is the review number {number} positive or negative? It says: take"
                        f" {number} stars."
                    ),
                    "prediction": "positive",
                    "reference": "positive" if number % 2 else "negative",
                }
                file.write(json.dumps(row) + "\n")
