import json

import pandas as pd

q = pd.read_csv("raw/questions.csv", parse_dates=["created_at"]).sort_values("created_at")
a = pd.read_csv("raw/answers.csv")
assert len(q) == len(a)

df = pd.DataFrame({"instruction": q["text"].values, "input": "", "output": a["text"].values})
df = df[(df["instruction"].str.len() > 5) & (df["output"].str.len() > 5)]

with open("data/shop_qa.json", "w") as f:
    json.dump(df.to_dict("records"), f, indent=1, ensure_ascii=False)
print(len(df), "rows")
