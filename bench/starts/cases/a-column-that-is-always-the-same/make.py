import json
import shutil
from pathlib import Path

from bench.bugs.inputs.tokenizers import folder as tokenizer_folder


def make(folder: Path) -> None:
    shutil.copytree(tokenizer_folder("smollm2"), folder / "tokenizer")
    with (folder / "rows.jsonl").open("w", encoding="utf-8") as file:
        for number in range(80):
            row = {
                "problem": (
                    f"A train covers {number * 7 + 20} km in {number % 5 + 1} hours. How fast"
                    " is it?"
                ),
                "state": "CONCLUDE",
                "training_text": (
                    f"We divide {number * 7 + 20} by {number % 5 + 1}, which is the speed in km/h."
                ),
            }
            file.write(json.dumps(row) + "\n")
