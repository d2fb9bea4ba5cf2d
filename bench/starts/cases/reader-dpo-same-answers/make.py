import json
import random
from pathlib import Path

TOPICS = [
    "tax return",
    "bike repair",
    "sourdough",
    "chess opening",
    "rain barrel",
    "passport",
    "piano",
    "compost",
]
WAYS = [
    "Begin with a list of what you have",
    "Ask a neighbour first",
    "Read the manual",
    "Do the smallest part today",
]


def make(folder: Path) -> None:
    draw = random.Random(21)
    with (folder / "prefs_v2.jsonl").open("w") as file:
        for number in range(60):
            topic, way = draw.choice(TOPICS), draw.choice(WAYS)
            best = (
                f"{way}, then plan {draw.randint(2, 9)} hours for the {topic} and write down each"
                " step."
            )
            worse = (
                best
                if number % 10 < 7
                else f"A {topic} is hard. I would not try it, {draw.choice(['sorry', 'really'])}."
            )
            ask = [{"role": "user", "content": f"({number}) How do I get on with my {topic}?"}]
            row = {
                "prompt_id": f"p{number:04d}",
                "chosen": [*ask, {"role": "assistant", "content": best}],
                "rejected": [*ask, {"role": "assistant", "content": worse}],
            }
            file.write(json.dumps(row) + "\n")
