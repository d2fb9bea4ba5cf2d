import csv
import json

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoTokenizer

from finetune_mails_prompt import LABELS, PROMPT

tokenizer = AutoTokenizer.from_pretrained("out-mails/final")
model = AutoPeftModelForCausalLM.from_pretrained("out-mails/final", torch_dtype=torch.bfloat16).to("cuda").eval()

hits = 0
rows = list(csv.DictReader(open("data/test.csv")))
with open("test_predictions.jsonl", "w") as f:
    for row in rows:
        enc = tokenizer(PROMPT.format(mail=row["mail"]), return_tensors="pt").to("cuda")
        with torch.no_grad():
            out = model.generate(**enc, max_new_tokens=4, do_sample=False)
        answer = tokenizer.decode(out[0, enc.input_ids.shape[1]:], skip_special_tokens=True).strip()
        hits += answer == row["label"]
        f.write(json.dumps({**row, "prediction": answer}) + "\n")
print("accuracy", hits / len(rows))
