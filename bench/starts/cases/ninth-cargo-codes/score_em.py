import json

hits, n = 0, 0
for line in open("predictions.jsonl", encoding="utf-8"):
    row = json.loads(line)
    n += 1
    hits += row["prediction"].strip() == row["reference"].strip()
print(f"exact match {hits}/{n} = {hits / n:.3f}")
