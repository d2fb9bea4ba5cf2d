import json
import random
from pathlib import Path

ITEMS = [
    "kettle",
    "drill",
    "tent",
    "lamp",
    "router",
    "printer",
    "mower",
    "blender",
    "scale",
    "heater",
]
FAULTS = [
    "does not switch on",
    "makes a loud noise",
    "smells of smoke",
    "is missing a screw",
    "has a cracked case",
]


def vary(question: str, draw: random.Random) -> str:
    forms = [
        question.lower(),
        question.upper(),
        question.replace("My", "my").rstrip("?.") + "  !",
        f"Hello, {question}",
    ]
    return draw.choice(forms)


def make(folder: Path) -> None:
    draw = random.Random(7)
    rows = []
    for item in ITEMS:
        for fault in FAULTS:
            days = draw.randint(2, 40)
            question = (
                f"My {item} {fault}, I bought it {days} days ago in your shop in Graz. Can I send"
                " it back?"
            )
            receipt = draw.randint(1000, 9999)
            answer = (
                f"Yes, the {item} can go back within {days + 12} days; please add the receipt"
                f" {receipt}."
            )
            rows.append({"instruction": question, "output": answer})
            rows.append({"instruction": vary(question, draw), "output": answer})
            rows.append({"instruction": vary(question, draw), "output": answer})
    draw.shuffle(rows)
    for name, part in {"train.jsonl": rows[30:], "test.jsonl": rows[:30]}.items():
        with (folder / name).open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in part)
