import json
import random
from collections import Counter, defaultdict

random.seed(13)

SYSTEM = "Assign the ticket to one team. Answer with the name of the team only."

rows = [json.loads(line) for line in open("tickets.jsonl")]
print("raw", Counter(r["team"] for r in rows))

# classes are very unbalanced, bring all of them to the size of the largest
by_team = defaultdict(list)
for r in rows:
    by_team[r["team"]].append(r)
size = max(len(v) for v in by_team.values())

balanced = []
for team, items in by_team.items():
    balanced += items
    balanced += random.choices(items, k=size - len(items))
print("balanced", Counter(r["team"] for r in balanced))

random.shuffle(balanced)
cut = int(0.8 * len(balanced))


def write(path, part):
    with open(path, "w") as f:
        for r in part:
            f.write(json.dumps({"messages": [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": r["subject"] + "\n\n" + r["body"]},
                {"role": "assistant", "content": r["team"]},
            ]}, ensure_ascii=False) + "\n")


write("train.jsonl", balanced[:cut])
write("val.jsonl", balanced[cut:])
print("train", cut, "val", len(balanced) - cut)
