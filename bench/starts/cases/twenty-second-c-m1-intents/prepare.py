import json
import random
import re
from pathlib import Path

from sklearn.model_selection import train_test_split

SWAPS = {"cannot": "can't", "I am": "I'm", "please": "pls", "order": "purchase", "delivery": "shipment",
         "money": "cash", "account": "profile", "broken": "damaged", "parcel": "package"}


def typo(text, rng):
    words = text.split()
    i = rng.randrange(len(words))
    w = words[i]
    if len(w) > 3:
        j = rng.randrange(1, len(w) - 1)
        words[i] = w[:j] + w[j + 1] + w[j] + w[j + 2:]
    return " ".join(words)


def swap(text, rng):
    for a, b in SWAPS.items():
        if rng.random() < 0.6:
            text = re.sub(rf"\b{a}\b", b, text)
    return text


def greet(text, rng):
    return rng.choice(["Hi, ", "Hello, ", "Good morning. ", "Dear team, "]) + text + rng.choice(["", " Thanks!", " Regards", " Thank you."])


def variants(row, k, rng):
    yield row
    for _ in range(k):
        f = rng.choice([typo, swap, greet])
        yield {**row, "text": f(row["text"], rng)}


def main(src="tickets.jsonl", k=5, seed=42):
    rng = random.Random(seed)
    rows = [json.loads(x) for x in open(src)]
    pool = [v for r in rows for v in variants(r, k, rng)]
    labels = [r["label"] for r in pool]
    train, val = train_test_split(pool, test_size=0.15, random_state=seed, stratify=labels)
    out = Path("data")
    out.mkdir(exist_ok=True)
    for name, part in (("train", train), ("val", val)):
        with open(out / f"{name}.jsonl", "w") as f:
            for r in part:
                f.write(json.dumps({"text": r["text"], "label": r["label"]}) + "\n")
    print(len(rows), "tickets ->", len(train), "train,", len(val), "val")


if __name__ == "__main__":
    main()
