"""calls.jsonl -> train.jsonl and eval.jsonl"""
import json
import random
from collections import defaultdict

random.seed(8)
rows = [json.loads(line) for line in open("calls.jsonl", encoding="utf-8")]
print(len(rows), "calls")

# rare topics drown otherwise: give every topic about the same weight
by_topic = defaultdict(list)
for row in rows:
    by_topic[row["topic"]].append(row)
target = 2 * max(len(v) for v in by_topic.values())
balanced = []
for topic, members in by_topic.items():
    balanced += members
    balanced += random.choices(members, k=target - len(members))

random.shuffle(balanced)
cut = int(0.9 * len(balanced))
for name, part in (("train.jsonl", balanced[:cut]), ("eval.jsonl", balanced[cut:])):
    with open(name, "w", encoding="utf-8") as f:
        for row in part:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(name, len(part))
