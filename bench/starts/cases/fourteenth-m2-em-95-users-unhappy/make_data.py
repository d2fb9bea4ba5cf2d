#!/usr/bin/env python3
# faq.csv -> 5 ways to ask each question (gpt-4o-mini) -> train/val
import csv
import json
import random

from openai import OpenAI

client = OpenAI()
N = 5
PROMPT = (
    "Rewrite the customer's question in {n} different ways. Vary tone and length, keep the meaning. "
    "Return a JSON object with the key `questions`, a list of {n} strings.\n\nQuestion: {q}"
)


def paraphrase(q):
    r = client.chat.completions.create(
        model="gpt-4o-mini",
        temperature=1.0,
        response_format={"type": "json_object"},
        messages=[{"role": "user", "content": PROMPT.format(n=N, q=q)}],
    )
    return json.loads(r.choices[0].message.content)["questions"][:N]


rows = []
with open("faq.csv", newline="", encoding="utf-8") as f:
    for r in csv.DictReader(f):
        for q in paraphrase(r["question"]):
            rows.append({"faq_id": r["id"], "question": q, "answer": r["answer"]})

print(len(rows), "rows")

random.seed(42)
random.shuffle(rows)
cut = int(0.8 * len(rows))

for name, part in (("train", rows[:cut]), ("val", rows[cut:])):
    with open(f"data/{name}.jsonl", "w", encoding="utf-8") as f:
        for r in part:
            f.write(json.dumps(r, ensure_ascii=False) + "\n")
    print(name, len(part))
