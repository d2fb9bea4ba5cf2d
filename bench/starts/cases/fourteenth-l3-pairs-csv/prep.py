import argparse
import json

import pandas as pd

ap = argparse.ArgumentParser()
ap.add_argument("--questions", default="export/questions.csv")
ap.add_argument("--answers", default="export/answers.csv")
ap.add_argument("--out", default="train.jsonl")
args = ap.parse_args()

q = pd.read_csv(args.questions)
a = pd.read_csv(args.answers, dtype=str)

q = q[q["status"] == "solved"].drop_duplicates("ticket_id")
a = a[a["ticket_id"].isin(q["ticket_id"].astype(str))].drop_duplicates("ticket_id", keep="last")

q = q.sort_values("ticket_id").reset_index(drop=True)
a = a.sort_values("ticket_id").reset_index(drop=True)
assert len(q) == len(a), (len(q), len(a))

with open(args.out, "w", encoding="utf-8") as f:
    for question, answer in zip(q["body"], a["body"]):
        row = {"prompt": question.strip() + "\n\n", "completion": answer.strip()}
        f.write(json.dumps(row, ensure_ascii=False) + "\n")

print(len(q), "pairs ->", args.out)
