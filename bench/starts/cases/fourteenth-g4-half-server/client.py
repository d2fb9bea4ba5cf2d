import csv
import json

from openai import OpenAI

client = OpenAI(base_url="http://gpu-box:8000/v1", api_key="none")

SYSTEM = "You summarise clauses of contracts for tenants in plain English."


def ask(clause):
    r = client.chat.completions.create(
        model="contracts",
        messages=[
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": clause},
        ],
        temperature=0.2,
        max_tokens=200,
    )
    return r.choices[0].message.content, r.choices[0].finish_reason


with open("clauses.csv", newline="") as f, open("answers.jsonl", "w") as out:
    for row in csv.DictReader(f):
        text, reason = ask(row["clause"])
        out.write(json.dumps({"id": row["id"], "prompt": row["clause"], "prediction": text, "finish_reason": reason}) + "\n")
