#!/usr/bin/env python
"""Score the moderation fine-tune. Usage: python score.py preds.jsonl"""
import json
import sys
from collections import Counter


def norm(s):
    return s.strip().lower().rstrip(".")


def main(path):
    rows = [json.loads(line) for line in open(path, encoding="utf-8")]
    hits = 0
    per = Counter()
    n = Counter()
    for r in rows:
        gold = norm(r["label"])
        pred = norm(r["output"])
        ok = gold in pred
        hits += ok
        per[gold] += ok
        n[gold] += 1
    print(f"{path}: {len(rows)} rows")
    print(f"accuracy {hits / len(rows):.3f}")
    for k in n:
        print(f"  {k:8s} {per[k] / n[k]:.3f}  ({n[k]})")


if __name__ == "__main__":
    main(sys.argv[1])
