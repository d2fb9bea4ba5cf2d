"""exports from phone, mail and web form -> one file -> random 85/15 split"""
import json
import random
from pathlib import Path

DATA = Path("data")
random.seed(2026)

rows = [json.loads(line) for line in (DATA / "all.jsonl").read_text(encoding="utf-8").splitlines()]
random.shuffle(rows)
cut = int(0.85 * len(rows))
for name, part in (("train", rows[:cut]), ("val", rows[cut:])):
    with open(DATA / f"{name}.jsonl", "w", encoding="utf-8") as f:
        for row in part:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(name, len(part))
