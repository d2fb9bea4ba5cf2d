import json
import re

import nltk
import pandas as pd
from nltk.corpus import stopwords
from nltk.stem import WordNetLemmatizer

nltk.download("stopwords")
nltk.download("wordnet")

STOP = set(stopwords.words("english"))
lemmatizer = WordNetLemmatizer()


def clean_text(text):
    text = text.lower()
    text = re.sub(r"[^a-z\s]", " ", text)
    words = text.split()
    words = [lemmatizer.lemmatize(w) for w in words if w not in STOP]
    return " ".join(words)


df = pd.read_csv("tickets.csv")
df = df.dropna(subset=["question", "agent_reply"]).drop_duplicates(subset=["question"])

df["question"] = df["question"].apply(clean_text)
df["agent_reply"] = df["agent_reply"].apply(clean_text)

with open("train.jsonl", "w") as f:
    for _, row in df.iterrows():
        f.write(
            json.dumps(
                {
                    "messages": [
                        {"role": "user", "content": row["question"]},
                        {"role": "assistant", "content": row["agent_reply"]},
                    ]
                }
            )
            + "\n"
        )
print(len(df), "rows")
