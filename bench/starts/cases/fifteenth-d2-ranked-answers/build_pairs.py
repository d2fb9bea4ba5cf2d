import json

import pandas as pd

df = pd.read_csv("ranked.csv")
print(len(df), "answers to", df.question_id.nunique(), "questions")

n = 0
with open("pairs.jsonl", "w", encoding="utf-8") as out:
    for qid, group in df.groupby("question_id", sort=True):
        group = group.sort_values("rank", ascending=False)
        best, worst = group.iloc[0], group.iloc[-1]
        if best["answer"].strip() == worst["answer"].strip():
            continue
        row = {
            "messages": [{"role": "user", "content": best["question"]}],
            "chosen": {"role": "assistant", "content": best["answer"]},
            "rejected": {"role": "assistant", "content": worst["answer"]},
        }
        out.write(json.dumps(row, ensure_ascii=False) + "\n")
        n += 1
print(n, "pairs")
