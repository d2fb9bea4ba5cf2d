import csv
import json
import random
from collections import defaultdict

random.seed(13)

groups = defaultdict(list)
with open("annotations.csv", newline="", encoding="utf-8") as f:
    for row in csv.DictReader(f):
        row["rank"] = int(row["rank"])
        groups[row["prompt_id"]].append(row)

pairs = []
for pid, rows in groups.items():
    if len(rows) < 2:
        continue
    rows.sort(key=lambda r: r["rank"], reverse=True)
    best, worst = rows[0], rows[-1]
    if best["reply"].strip() == worst["reply"].strip():
        continue
    pairs.append(
        {
            "prompt": [{"role": "user", "content": best["prompt"]}],
            "chosen": [{"role": "assistant", "content": best["reply"]}],
            "rejected": [{"role": "assistant", "content": worst["reply"]}],
            "prompt_id": pid,
            "chosen_rank": best["rank"],
            "rejected_rank": worst["rank"],
        }
    )

random.shuffle(pairs)
with open("pairs.jsonl", "w", encoding="utf-8") as f:
    for p in pairs:
        f.write(json.dumps(p, ensure_ascii=False) + "\n")
print(f"{len(pairs)} pairs from {len(groups)} prompts")
