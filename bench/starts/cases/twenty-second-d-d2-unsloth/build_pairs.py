import csv
import json
from collections import defaultdict
from dataclasses import dataclass


@dataclass
class Ranked:
    text: str
    rank: int


def read(path):
    groups = defaultdict(list)
    with open(path, newline="", encoding="utf-8") as f:
        for row in csv.DictReader(f):
            groups[row["task_id"], row["message"]].append(Ranked(row["answer"], int(row["rank"])))
    return groups


def to_pair(message, answers):
    ordered = sorted(answers, key=lambda a: a.rank, reverse=True)
    best, worst = ordered[0], ordered[-1]
    if best.rank - worst.rank < 2:
        return None
    return {
        "prompt": [{"role": "user", "content": message}],
        "chosen": [{"role": "assistant", "content": best.text}],
        "rejected": [{"role": "assistant", "content": worst.text}],
    }


if __name__ == "__main__":
    pairs = [to_pair(m, a) for (_, m), a in read("rankings.csv").items()]
    pairs = [p for p in pairs if p]
    with open("pairs.jsonl", "w", encoding="utf-8") as f:
        for p in pairs:
            f.write(json.dumps(p, ensure_ascii=False) + "\n")
    print(len(pairs), "pairs")
