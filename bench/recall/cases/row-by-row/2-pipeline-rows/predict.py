import json
import time

import torch
from datasets import load_dataset
from sklearn.metrics import f1_score
from transformers import pipeline

MODEL = "exports/toxicity-qwen-merged"
LABELS = ["none", "mild", "severe"]

pipe = pipeline("text-generation", model=MODEL, dtype=torch.bfloat16, device=0)
test = load_dataset("csv", data_files="data/toxicity_test.csv", split="train")


def classify(comment):
    messages = [
        {"role": "system", "content": "Rate the toxicity of the comment: none, mild or severe."},
        {"role": "user", "content": comment},
    ]
    out = pipe(messages, max_new_tokens=3, do_sample=False, return_full_text=False)
    text = out[0]["generated_text"].strip().lower()
    return text if text in LABELS else "none"


start = time.time()
predictions = []
for i, row in enumerate(test):
    predictions.append(classify(row["comment"]))
    if (i + 1) % 200 == 0:
        print(f"{i + 1}/{len(test)}  {(time.time() - start) / (i + 1):.2f} s per comment")

gold = test["label"]
scores = f1_score(gold, predictions, labels=LABELS, average=None)
summary = {name: round(float(s), 4) for name, s in zip(LABELS, scores)}
summary["macro"] = round(float(f1_score(gold, predictions, average="macro")), 4)
print(summary)
with open("toxicity_scores.json", "w") as f:
    json.dump(summary, f, indent=2)
