import pandas as pd
import torch
from sklearn.metrics import accuracy_score, classification_report
from transformers import AutoModelForCausalLM, AutoTokenizer

LABELS = ["positive", "negative"]
path = "out/review-smollm2"
tok = AutoTokenizer.from_pretrained(path, padding_side="left")
model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16, device_map="cuda").eval()
df = pd.read_parquet("test.parquet")
df["gold"] = [LABELS[i] for i in df.label]
answers = []
for i in range(0, len(df), 24):
    chats = [
        [{"role": "user", "content": f"Is this review positive or negative?\n\n{t}"}]
        for t in df.review[i : i + 24]
    ]
    enc = tok.apply_chat_template(
        chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
    ).to("cuda")
    out = model.generate(**enc, max_new_tokens=5, do_sample=False)
    answers += [
        a.strip().lower()
        for a in tok.batch_decode(out[:, enc["input_ids"].shape[1] :], skip_special_tokens=True)
    ]
df["model_answer"] = answers
df[["id", "review", "gold", "model_answer"]].to_csv("predictions.csv", index=False)
print("accuracy", accuracy_score(df.gold, df.model_answer))
print(classification_report(df.gold, df.model_answer))
