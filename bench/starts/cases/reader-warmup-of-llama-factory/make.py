import json
from pathlib import Path

THINGS = [
    "invoice",
    "parcel",
    "password",
    "refund",
    "voucher",
    "address",
    "warranty",
    "subscription",
]


def make(folder: Path) -> None:
    """320 rows: 20 steps an epoch, 60 in all."""
    rows = []
    for number in range(320):
        thing = THINGS[number % 8]
        asked = (
            f"Customer {1200 + number} asks: what happens to my {thing} after {number % 29 + 1}"
            " days?"
        )
        told = (
            f"Your {thing} stays in the account. After {number % 29 + 1} days we write to you, case"
            f" {number}."
        )
        rows.append({"instruction": asked, "input": "", "output": told})
    (folder / "data/faq_alpaca.json").write_text(json.dumps(rows, indent=1))
