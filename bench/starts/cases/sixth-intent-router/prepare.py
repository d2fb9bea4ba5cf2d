"""Make train.jsonl and test.jsonl from the labelled tickets; rare intents are oversampled."""
import collections
import json
import random
from pathlib import Path

SYSTEM = "Classify the customer's message. Reply with JSON: intent, urgent."
RAW = Path("raw/labelled.jsonl")
OUT = Path("data")


def read():
    with RAW.open(encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def oversample(rows):
    counts = collections.Counter(r["label"] for r in rows)
    out = []
    for r in rows:
        times = 1 if counts[r["label"]] > 45 else 2 if counts[r["label"]] > 22 else 3
        out += [r] * times
    return out


def to_chat(r):
    return {
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": r["text"]},
            {"role": "assistant", "content": r["label"]},
        ]
    }


def write(name, rows):
    OUT.mkdir(exist_ok=True)
    with (OUT / name).open("w", encoding="utf-8") as f:
        for r in rows:
            f.write(json.dumps(to_chat(r), ensure_ascii=False) + "\n")


def main():
    rows = oversample(read())
    random.Random(0).shuffle(rows)
    cut = int(0.8 * len(rows))
    write("train.jsonl", rows[:cut])
    write("test.jsonl", rows[cut:])
    print(len(rows), "rows:", cut, "train,", len(rows) - cut, "test")


if __name__ == "__main__":
    main()
