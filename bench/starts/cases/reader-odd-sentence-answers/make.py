import json
import random
from pathlib import Path


def make(folder: Path) -> None:
    draw = random.Random(11)
    with (folder / "preds.jsonl").open("w") as file:
        for number in range(40):
            boxes, each, gone = draw.randint(3, 9), draw.randint(4, 12), draw.randint(1, 10)
            gold = boxes * each - gone
            said = gold if draw.random() < 0.8 else gold + draw.randint(1, 5)
            question = (
                f"A shop has {boxes} boxes of {each} pens and sells {gone} pens. How many pens are"
                " left?"
            )
            resp = (
                f"There are {boxes} * {each} = {boxes * each} pens at first. After {gone} are sold,"
                f" {boxes * each} - {gone} = {said} are left. The answer is {said}."
            )
            row = {
                "id": number,
                "question": question,
                "resp": resp,
                "gold": str(gold),
                "em": int(resp.strip() == str(gold)),
            }
            file.write(json.dumps(row) + "\n")
