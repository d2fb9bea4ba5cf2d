import base64
import json
import random
from pathlib import Path

GOODS = ["drill", "sofa", "watch", "bike", "helmet", "stove"]
TONES = [
    "works as it should",
    "broke in the first week",
    "is heavier than I thought",
    "was a present and was liked",
]


def make(folder: Path) -> None:
    """Short reviews, and in one of them a scanned receipt that was pasted as base64."""
    rng = random.Random(6)
    with (folder / "reviews.jsonl").open("w") as out:
        for number in range(400):
            goods, tone = GOODS[number % 6], TONES[number % 4]
            review = f"Order {number}: the {goods} {tone}. I would give it {number % 5 + 1} stars."
            if number == 287:
                review += (
                    " Receipt: data:image/png;base64,"
                    + base64.b64encode(rng.randbytes(48_000)).decode()
                )
            reply = (
                f"Thank you for writing about the {goods} of order {number}. We pass on that it"
                f" {tone}."
            )
            turns = [{"role": "user", "content": review}, {"role": "assistant", "content": reply}]
            out.write(json.dumps({"messages": turns}) + "\n")
