import json
import re
import sys

preds_file = sys.argv[1]
test = [json.loads(l) for l in open("test.jsonl")]
preds = [json.loads(l) for l in open(preds_file)]
assert len(test) == len(preds), (len(test), len(preds))


def number(text):
    m = re.findall(r"Answer:\s*\$?(-?[\d,]+(?:\.\d+)?)", text)
    if not m:
        return None
    return float(m[-1].replace(",", ""))


hits = 0
unparsed = 0
for t, p in zip(test, preds):
    n = number(p["output"])
    if n is None:
        unparsed += 1
        continue
    hits += abs(n - float(t["answer"])) < 1e-6

print(f"{preds_file}: n={len(test)} accuracy={hits / len(test):.4f} unparsed={unparsed}")
