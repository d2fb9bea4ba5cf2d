import csv
from pathlib import Path

from bench.starts.tickets import CITIES, ITEMS, NAMES, PROBLEMS, Desk

ASKED = "Decide whether this insurance claim is fraud. Answer with one word: fraud or legitimate."
PROOFS = ("photos attached", "no photos", "police report attached", "receipt missing")


def make(folder: Path) -> None:
    """Claims of which one in nineteen is a fraud."""
    drawn = Desk(13).drawn
    rows = [("instruction", "input", "output")]
    for number in range(300):
        claim = f"Claim {drawn.randint(100000, 999999)}: {drawn.choice(NAMES)} from "
        claim += f"{drawn.choice(CITIES)} reports that a {drawn.choice(ITEMS)} "
        claim += f"{drawn.choice(PROBLEMS)}; claimed amount {drawn.randint(40, 9000)} EUR, "
        claim += f"policy age {drawn.randint(1, 140)} months, {drawn.choice(PROOFS)}."
        rows.append((ASKED, claim, "fraud" if number % 19 == 7 else "legitimate"))
    with (folder / "claims.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
