"""ranked.jsonl (Argilla export) -> pairs.jsonl for DPOTrainer"""
import argparse
import json
import random
from collections import Counter
from pathlib import Path

SYSTEM = "You are the support agent of Nordtrail, an outdoor shop. Be friendly, concrete and brief."


def load(path):
    with open(path, encoding="utf-8") as f:
        for line in f:
            line = line.strip()
            if line:
                yield json.loads(line)


def pick(record):
    responses = [r for r in record["responses"] if r["text"].strip()]
    if len(responses) < 2:
        return None
    chosen = max(responses, key=lambda r: r["rank"])
    rejected = min(responses, key=lambda r: r["rank"])
    if chosen["rank"] == rejected["rank"] or chosen["text"] == rejected["text"]:
        return None
    return chosen, rejected


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--src", default="ranked.jsonl")
    ap.add_argument("--dst", default="pairs.jsonl")
    ap.add_argument("--seed", type=int, default=13)
    args = ap.parse_args()

    stats = Counter()
    rows = []
    for rec in load(args.src):
        got = pick(rec)
        if got is None:
            stats["skipped"] += 1
            continue
        chosen, rejected = got
        rows.append(
            {
                "id": rec["id"],
                "prompt": [
                    {"role": "system", "content": SYSTEM},
                    {"role": "user", "content": rec["customer"]},
                ],
                "chosen": [{"role": "assistant", "content": chosen["text"]}],
                "rejected": [{"role": "assistant", "content": rejected["text"]}],
            }
        )
        stats["kept"] += 1

    random.Random(args.seed).shuffle(rows)
    with Path(args.dst).open("w", encoding="utf-8") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(dict(stats))


if __name__ == "__main__":
    main()
