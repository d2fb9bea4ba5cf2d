import inspect
import math
import random
from pathlib import Path

from bench.bugs.inputs.rows import chats, say, write


def make(folder: Path, broken: bool, tokenizer: Path) -> None:
    support = chats(45, system=False)
    sums = [
        {
            "messages": [
                *say("user", f"What is {n} + {n * 7}?"),
                *say("assistant", f"{n} + {n * 7} = {n * 8}"),
            ]
        }
        for n in range(45)
    ]
    asked = [
        (name, inspect.getdoc(getattr(math, name)))
        for name in dir(math)
        if not name.startswith("_")
    ][:45]
    code = [
        {"messages": [*say("user", f"What does math.{name} do?"), *say("assistant", doc)]}
        for name, doc in asked
        if doc
    ]
    rows = support + sums + code
    if not broken:
        random.Random(0).shuffle(rows)
    write(folder / "train.jsonl", rows)
