import json
from pathlib import Path


def row(number: int) -> str:
    messages = [
        {
            "role": "user",
            "content": f"Name the {number}th thing that a gardener does in spring, and say why.",
        },
        {
            "role": "assistant",
            "content": f"Thing {number}: prune shrub number {number * 13 % 97}, since it is due.",
        },
    ]
    return json.dumps({"messages": messages}) + "\n"


def make(folder: Path) -> None:
    (folder / "train.jsonl").write_text(
        "".join(row(number) for number in range(200)), encoding="utf-8"
    )
    (folder / "eval.jsonl").write_text(
        "".join(row(number) for number in range(180, 240)), encoding="utf-8"
    )
