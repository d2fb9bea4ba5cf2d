import json
from pathlib import Path

ITEMS = ["kettle", "lamp", "tent", "backpack", "printer", "blender", "camera"]
TROUBLES = [
    "does not switch on",
    "came without its cable",
    "has a scratch",
    "makes a strange noise",
]


def make(folder: Path) -> None:
    """Chats of a shop: the customer writes first, the agent answers last."""
    with (folder / "conversations.jsonl").open("w") as out:
        for number in range(200):
            item, trouble = ITEMS[number % 7], TROUBLES[number % 4]
            turns = [
                ("customer", f"Hello, the {item} of my order {70000 + number} {trouble}."),
                ("agent", f"I am sorry to hear that. Since when is it that the {item} {trouble}?"),
                ("customer", f"For {number % 11 + 1} days now, and I need it on Friday."),
                (
                    "agent",
                    (
                        f"We send you a new {item} today under case {number}; keep the old one"
                        " until it arrives."
                    ),
                ),
            ]
            out.write(
                json.dumps({"conversation": [{"from": who, "value": text} for who, text in turns]})
                + "\n"
            )
