#!/usr/bin/env python
"""Turn the annotation export into DPO pairs.

usage: build_pairs.py annotations.jsonl pairs.jsonl
"""
import json
import statistics
import sys
from collections import defaultdict

SYSTEM = "You are the help desk assistant of Northbank. Be correct, concrete and polite."


def load(path):
    with open(path, encoding="utf-8") as f:
        for line in f:
            line = line.strip()
            if line:
                yield json.loads(line)


def mean_rank(cand):
    return statistics.mean(cand["ranks"].values())


def main(src, dst):
    seen = set()
    stats = defaultdict(int)
    with open(dst, "w", encoding="utf-8") as out:
        for task in load(src):
            stats["tasks"] += 1
            if task["task_id"] in seen:
                stats["dup"] += 1
                continue
            seen.add(task["task_id"])
            cands = [c for c in task["candidates"] if c["text"].strip()]
            if len(cands) < 2:
                stats["too_few"] += 1
                continue
            cands.sort(key=mean_rank, reverse=True)
            best, worst = cands[0], cands[-1]
            if mean_rank(best) - mean_rank(worst) < 1.0:
                stats["no_agreement"] += 1
                continue
            row = {
                "prompt": [
                    {"role": "system", "content": SYSTEM},
                    {"role": "user", "content": task["question"]},
                ],
                "chosen": [{"role": "assistant", "content": best["text"]}],
                "rejected": [{"role": "assistant", "content": worst["text"]}],
            }
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            stats["pairs"] += 1
    print(dict(stats))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
