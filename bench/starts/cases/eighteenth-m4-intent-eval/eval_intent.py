import csv

import torch
from datasets import load_dataset
from peft import PeftModel
from sklearn.metrics import accuracy_score, f1_score
from transformers import AutoModelForSequenceClassification, AutoTokenizer

BASE = "Qwen/Qwen2.5-1.5B"
ADAPTER = "out/intent/best"

train = load_dataset("csv", data_files="data/train.csv", split="train")
test = load_dataset("csv", data_files="data/test.csv", split="train")
labels = list(set(train["intent"]))
id2label = dict(enumerate(labels))

tok = AutoTokenizer.from_pretrained(ADAPTER)
model = AutoModelForSequenceClassification.from_pretrained(BASE, num_labels=len(labels), dtype=torch.bfloat16)
model.config.pad_token_id = tok.pad_token_id
model = PeftModel.from_pretrained(model, ADAPTER).cuda().eval()

pred = []
with torch.no_grad():
    for i in range(0, len(test), 64):
        enc = tok(test[i:i + 64]["text"], padding=True, truncation=True, max_length=128, return_tensors="pt").to("cuda")
        pred += [id2label[j] for j in model(**enc).logits.argmax(-1).tolist()]

print("accuracy", round(accuracy_score(test["intent"], pred), 4))
print("macro f1", round(f1_score(test["intent"], pred, average="macro"), 4))
with open("test_predictions.csv", "w", newline="") as f:
    w = csv.writer(f)
    w.writerow(["text", "label", "prediction"])
    w.writerows(zip(test["text"], test["intent"], pred))
