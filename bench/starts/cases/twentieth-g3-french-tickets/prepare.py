import json

import pandas as pd

df = pd.read_csv("tickets_export.csv", sep=";", encoding="latin-1")
df = df.dropna(subset=["question", "reponse"]).drop_duplicates("question")

rows = [
    {"instruction": q.strip(), "input": "", "output": a.strip()}
    for q, a in zip(df["question"], df["reponse"])
]
with open("data/tickets_fr.json", "w", encoding="utf-8") as f:
    json.dump(rows, f, ensure_ascii=False, indent=1)
print(len(rows), "rows")
