import csv, sys
import torch
from peft import PeftModel
from transformers import AutoModelForSequenceClassification, AutoTokenizer

LABELS = ["billing", "cancel", "delivery", "login", "refund", "upgrade", "other"]
tok = AutoTokenizer.from_pretrained("intent-adapter")
base = AutoModelForSequenceClassification.from_pretrained(
    "Qwen/Qwen2.5-1.5B", num_labels=len(LABELS), id2label=dict(enumerate(LABELS)),
    torch_dtype=torch.bfloat16, device_map="cuda:0")
base.config.pad_token_id = tok.pad_token_id
model = PeftModel.from_pretrained(base, "intent-adapter").eval()

rows = list(csv.DictReader(open(sys.argv[1])))
right = 0
for i in range(0, len(rows), 64):
    part = rows[i:i + 64]
    x = tok([r["text"] for r in part], return_tensors="pt", padding=True, truncation=True, max_length=256).to("cuda:0")
    with torch.no_grad():
        y = model(**x).logits.argmax(-1).tolist()
    right += sum(LABELS[k] == r["intent"] for k, r in zip(y, part))
print(f"accuracy {right / len(rows):.4f} on {len(rows)} rows")
