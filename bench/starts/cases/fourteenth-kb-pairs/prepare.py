import json
import pandas as pd

questions = pd.read_csv("export/questions.csv")      # question_id, article_id, question
answers = pd.read_csv("export/articles.csv")         # article_id, body, updated_at

questions = questions.dropna(subset=["question"]).drop_duplicates("question").reset_index(drop=True)
answers = answers[answers["body"].str.len() > 20]
answers = answers.sort_values("updated_at", ascending=False).reset_index(drop=True)

df = questions.copy()
df["answer"] = answers["body"]
df = df.dropna(subset=["answer"]).sample(frac=1, random_state=0)

with open("train.jsonl", "w") as f:
    for r in df.itertuples():
        f.write(json.dumps({"messages": [
            {"role": "system", "content": "You are the internal helpdesk assistant of Norvane."},
            {"role": "user", "content": r.question.strip()},
            {"role": "assistant", "content": r.answer.strip()},
        ]}) + "\n")
print(len(df), "rows")
