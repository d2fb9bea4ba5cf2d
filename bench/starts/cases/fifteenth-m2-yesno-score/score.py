import json
import sys
from collections import Counter

rows = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]

hits = 0
by_label = Counter()
ok_label = Counter()
for row in rows:
    gold = row["label"].strip().lower()
    answer = row["model_output"].strip().lower()
    by_label[gold] += 1
    if gold in answer:
        hits += 1
        ok_label[gold] += 1

print(f"n = {len(rows)}")
print(f"accuracy = {hits / len(rows):.3f}")
for label, n in by_label.most_common():
    print(f"  {label:8s} {ok_label[label]}/{n}")
