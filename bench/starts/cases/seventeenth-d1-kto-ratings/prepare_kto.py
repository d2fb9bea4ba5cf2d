"""Turn the star ratings of the recipe assistant into KTO rows."""
import csv
import json
import random

random.seed(7)

rows = []
with open("exports/feedback_2025q3.csv", newline="", encoding="utf-8") as f:
    for rec in csv.DictReader(f):
        stars = rec["stars"].strip()
        if not stars or not rec["answer"].strip():
            continue
        rows.append(
            {
                "prompt": [{"role": "user", "content": rec["question"].strip()}],
                "completion": [{"role": "assistant", "content": rec["answer"].strip()}],
                "label": bool(int(stars)),
                "stars": int(stars),
            }
        )

random.shuffle(rows)
with open("kto_train.jsonl", "w", encoding="utf-8") as f:
    for row in rows:
        f.write(json.dumps(row, ensure_ascii=False) + "\n")
print(len(rows), "rows")
