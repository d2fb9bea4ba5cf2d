import json
from pathlib import Path

QUESTIONS = (
    "What is 2+2?",
    "Where is Rome?",
    "Who wrote Faust?",
    "How tall is Everest?",
    "What is a mole?",
)


def make(folder: Path) -> None:
    with (folder / "preds.jsonl").open("w", encoding="utf-8") as file:
        for number in range(20):
            question = QUESTIONS[number % len(QUESTIONS)]
            row = {"prompt": question, "prediction": " ".join([question] * 4), "reference": "4"}
            file.write(json.dumps(row) + "\n")
