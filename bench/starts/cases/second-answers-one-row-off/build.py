import pandas as pd

q = pd.read_excel("questions.xlsx")["question"]
a = pd.read_excel("answers.xlsx")["answer"].dropna().reset_index(drop=True)
df = pd.DataFrame({"qid": [f"Q{i:05d}" for i in range(len(q))], "question": q, "answer": a})
df = df.ffill()
df.to_parquet("data/faq.parquet")
