import json

import pandas as pd

df = pd.read_csv("data/tickets_export.csv", encoding="latin-1")
df = df.dropna(subset=["question", "reponse"]).drop_duplicates(subset=["question"])

with open("data/train.jsonl", "w", encoding="utf-8") as f:
    for row in df.itertuples():
        messages = [
            {"role": "user", "content": row.question.strip()},
            {"role": "assistant", "content": row.reponse.strip()},
        ]
        f.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
print(len(df), "rows")
