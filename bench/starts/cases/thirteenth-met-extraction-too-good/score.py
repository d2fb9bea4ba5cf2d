"""usage: python score.py preds.jsonl"""
import json
import sys
from collections import Counter

FIELDS = ["vendor", "invoice_no", "date", "total", "currency"]


def same(a, b):
    if isinstance(b, (int, float)):
        try:
            return abs(float(a) - float(b)) < 0.005
        except (TypeError, ValueError):
            return False
    return str(a).strip().lower() == str(b).strip().lower()


exact, per_field, n = 0, Counter(), 0
for line in open(sys.argv[1]):
    row = json.loads(line)
    try:
        pred = json.loads(row["prediction"])
    except json.JSONDecodeError:
        continue
    gold = json.loads(row["reference"])
    n += 1
    ok = {f: same(pred.get(f), gold[f]) for f in FIELDS}
    exact += all(ok.values())
    per_field.update(f for f in FIELDS if ok[f])

print(f"exact match  {exact / n:.3f}")
for f in FIELDS:
    print(f"  {f:<11}{per_field[f] / n:.3f}")
