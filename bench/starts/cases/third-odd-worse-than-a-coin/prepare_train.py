"""reviews.parquet has stars 1 to 5; label 1 is a good review"""

import json

import pandas as pd

df = pd.read_parquet("reviews.parquet")
df = df[df.stars != 3]
df["label"] = (df.stars > 3).astype(int)
df.iloc[:-240].to_parquet("train.parquet")
df.iloc[-240:][["id", "review", "label"]].to_parquet("test.parquet")
NAMES = {0: "negative", 1: "positive"}
with open("train.jsonl", "w") as f:
    for row in df.iloc[:-240].itertuples():
        f.write(
            json.dumps(
                {
                    "messages": [
                        {
                            "role": "user",
                            "content": f"Is this review positive or negative?\n\n{row.review}",
                        },
                        {"role": "assistant", "content": NAMES[row.label]},
                    ]
                }
            )
            + "\n"
        )
