"""Exact match of the label model. python eval_em.py preds.jsonl"""
import json
import sys
from collections import Counter


def normalise(text):
    return text.strip().lower().rstrip(".")


def main(path):
    rows = [json.loads(line) for line in open(path, encoding="utf-8")]
    hits = [normalise(r["prediction"]) == normalise(r["reference"]) for r in rows]
    print(f"rows         {len(rows)}")
    print(f"exact match  {sum(hits) / len(rows):.3f}")
    for label, total in Counter(r["reference"] for r in rows).most_common():
        good = sum(h for h, r in zip(hits, rows) if r["reference"] == label)
        print(f"  {label:12s} {good:4d} / {total}")


if __name__ == "__main__":
    main(sys.argv[1])
