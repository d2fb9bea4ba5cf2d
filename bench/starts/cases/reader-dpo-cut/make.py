import json
import random
from pathlib import Path

WORDS = [
    "invoice",
    "pump",
    "valve",
    "night",
    "order",
    "bridge",
    "stone",
    "paper",
    "river",
    "clock",
    "train",
    "garden",
]


def make(folder: Path) -> None:
    draw = random.Random(2)
    with (folder / "rag_pairs.jsonl").open("w") as file:
        for number in range(40):
            context = " ".join(
                f"Passage {part}: the {draw.choice(WORDS)} {draw.randint(1, 99)} belongs to the"
                f" {draw.choice(WORDS)}."
                for part in range(draw.randint(60, 90))
            )
            key = draw.choice(WORDS)
            row = {
                "prompt": (
                    f"Use only these passages.\n{context}\n\nQuestion {number}: where is the {key}?"
                ),
                "chosen": (
                    f"The passages do not say where the {key} is, they only say what belongs to it."
                ),
                "rejected": f"The {key} is in room {draw.randint(1, 40)}, I am certain.",
            }
            file.write(json.dumps(row) + "\n")
