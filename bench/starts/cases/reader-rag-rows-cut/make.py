import json
import random
from pathlib import Path

WORDS = [
    "valve",
    "pressure",
    "inlet",
    "housing",
    "bolt",
    "torque",
    "gasket",
    "sensor",
    "cable",
    "relay",
    "the",
    "a",
    "of",
    "is",
    "must",
    "be",
    "checked",
    "before",
    "after",
    "and",
    "replaced",
    "every",
    "hours",
    "by",
    "trained",
    "staff",
    "when",
    "warning",
    "lamp",
    "reads",
    "more",
    "than",
    "bar",
    "turn",
    "off",
    "pump",
    "open",
    "cover",
    "clean",
    "filter",
    "close",
    "wait",
    "minutes",
    "restart",
    "note",
    "value",
]


def make(folder: Path) -> None:
    """Passages of a manual in front of each question, about 900 tokens long, and the answer behind them."""
    rng = random.Random(2)
    with (folder / "rag.jsonl").open("w") as out:
        for number in range(90):
            passages = [
                " ".join(rng.choices(WORDS, k=150)).capitalize() + "."
                for _ in range(rng.randint(5, 8))
            ]
            context = "\n\n".join(
                f"[{place}] {passage}" for place, passage in enumerate(passages, 1)
            )
            asked = f"{context}\n\nQuestion: what is the torque of bolt {number}? Name the passage."
            told = (
                f"Bolt {number} takes {number % 37 + 12} Nm, see [{rng.randint(1, len(passages))}]."
            )
            turns = [{"role": "user", "content": asked}, {"role": "assistant", "content": told}]
            out.write(json.dumps({"messages": turns}) + "\n")
