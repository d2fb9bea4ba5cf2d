import json
import random

random.seed(2)
rows = []
for line in open("export/conversations.jsonl"):
    conv = json.loads(line)
    msgs = conv["messages"]
    # one example per assistant turn, with everything said before as context
    for i, m in enumerate(msgs):
        if m["role"] == "assistant":
            rows.append({"messages": msgs[: i + 1]})

random.shuffle(rows)
n_val = 30
with open("val.jsonl", "w") as f:
    for r in rows[:n_val]:
        f.write(json.dumps(r) + "\n")
with open("train.jsonl", "w") as f:
    for r in rows[n_val:]:
        f.write(json.dumps(r) + "\n")
print(len(rows) - n_val, "train", n_val, "val")
