import json
import random
from pathlib import Path

CITIES = ["Lyon", "Turin", "Ghent", "Porto", "Malmo", "Brno", "Cork", "Basel", "Split", "Gdansk"]
MORE = [
    "opening hours",
    "a day ticket",
    "the tram to the station",
    "a quiet hotel",
    "the museum",
    "parking",
    "the market",
]


def make(folder: Path) -> None:
    draw = random.Random(5)
    with (folder / "completions.jsonl").open("w") as file:
        for number in range(30):
            city, topic = draw.choice(CITIES), draw.choice(MORE)
            text = (
                f"In {city}, {topic} is best asked for at the tourist office, desk"
                f" {draw.randint(1, 9)}."
            )
            while len(text) < 2500:
                other, thing = draw.choice(CITIES), draw.choice(MORE)
                text += (
                    f"\nuser\nAnd what about {thing} in {other}, number"
                    f" {draw.randint(10, 99)}?\nassistant\n"
                )
                text += (
                    f"For {thing} in {other} please call {draw.randint(10000, 99999)} before"
                    f" {draw.randint(8, 18)}."
                )
            row = {
                "prompt": f"What do you know about {topic} in {city}?",
                "completion": text[:2500],
            }
            row |= {
                "finish_reason": "length",
                "completion_tokens": 640,
                "seconds": round(draw.uniform(21.0, 22.5), 2),
            }
            file.write(json.dumps(row | {"request": number}) + "\n")
