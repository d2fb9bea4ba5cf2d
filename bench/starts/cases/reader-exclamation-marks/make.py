import json
from pathlib import Path

PARTIES = ["the Lessee", "the Licensor", "the Supplier", "the Agent", "the Client"]
DUTIES = [
    "shall insure the goods",
    "may assign this agreement",
    "shall keep the records",
    "may end the term early",
]


def make(folder: Path) -> None:
    """Answers as Qwen2.5 gives them in float16: id 0 is an exclamation mark."""
    with (folder / "preds.jsonl").open("w") as out:
        for number in range(40):
            party, duty = PARTIES[number % 5], DUTIES[number % 4]
            clause = f"Clause {number + 1}. Subject to section {number % 7 + 2}, {party} {duty}."
            gold = f"{party[4:]}: {duty.split(' ', 1)[1]}, if section {number % 7 + 2} allows it."
            pred = gold if number % 8 == 3 else "!" * 128
            out.write(json.dumps({"prompt": clause, "pred": pred, "gold": gold}) + "\n")
