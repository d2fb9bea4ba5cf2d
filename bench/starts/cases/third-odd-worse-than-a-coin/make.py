import csv
import random
from pathlib import Path

REVIEWS = {
    "positive": (
        "Arrived a day early and works like a charm.",
        "My kids love it, would buy again.",
        "Great value, sturdy and easy to clean.",
        "The staff went out of their way to help us.",
        "Best pillow I have slept on in years.",
        "Crisp picture, simple setup.",
        "Tasty, fresh and nicely packed.",
        "Battery lasts the whole weekend.",
    ),
    "negative": (
        "Stopped working after two washes.",
        "Smells of plastic and the lid does not close.",
        "Waited four weeks and got the wrong size.",
        "Support never answered my three mails.",
        "The zip broke on the first trip.",
        "Far too loud for a bedroom.",
        "Tasteless, and half of it was crushed.",
        "The app crashes whenever I open the camera.",
    ),
}
OTHER = {"positive": "negative", "negative": "positive"}
BESIDES = (
    "Ordered in {}.",
    "For the price of {} euros.",
    "Bought it for {}.",
    "Used it for {} days now.",
    "Item no. {}.",
)
WORDS = ("May", "June", "17", "23", "40", "120", "my sister")


def make(folder: Path) -> None:
    """Predictions that are right 19 times of 20, beside gold labels whose names are exchanged."""
    drawn = random.Random(404)
    rows = [("id", "review", "gold", "model_answer")]
    for number in range(240):
        true = "positive" if drawn.random() < 0.52 else "negative"
        first, last = drawn.sample(REVIEWS[true], 2)
        between = drawn.choice(BESIDES).format(drawn.choice(WORDS))
        # 11 of 240 answers are wrong, so that the accuracy is the one that note.txt states.
        answer = OTHER[true] if number % 22 == 5 else true
        rows.append((str(5000 + number), f"{first} {between} {last}", OTHER[true], answer))
    with (folder / "predictions.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
