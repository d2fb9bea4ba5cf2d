"""dialogs.jsonl (one support dialog a line) -> train.jsonl and eval.jsonl"""
import json
import random

SYSTEM = "You are the service desk of Nordwind Internet. Answer briefly, and ask for what you need."


def to_rows(dialog):
    messages = [{"role": "system", "content": SYSTEM}]
    for turn in dialog["turns"]:
        role = "user" if turn["from"] == "customer" else "assistant"
        messages.append({"role": role, "content": turn["text"]})
        if role == "assistant":
            yield {"id": dialog["id"], "messages": list(messages)}


rows = [row for line in open("dialogs.jsonl") for row in to_rows(json.loads(line))]
random.Random(42).shuffle(rows)
cut = int(len(rows) * 0.9)
for name, part in (("train.jsonl", rows[:cut]), ("eval.jsonl", rows[cut:])):
    with open(name, "w") as out:
        for row in part:
            out.write(json.dumps({"messages": row["messages"]}) + "\n")
print(len(rows), "rows,", cut, "for training")
