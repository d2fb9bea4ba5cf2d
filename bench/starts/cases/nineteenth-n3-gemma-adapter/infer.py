import json
import torch
from peft import PeftModel
from transformers import AutoTokenizer, Gemma3ForCausalLM

BASE = "google/gemma-3-4b-it"
ADAPTER = "gemma3-legal-lora"

tok = AutoTokenizer.from_pretrained(BASE)
model = Gemma3ForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map="cuda:0")
model = PeftModel.from_pretrained(model, ADAPTER)
model.eval()

rows = [json.loads(l) for l in open("clauses_test.jsonl")][:20]
for i, row in enumerate(rows):
    msgs = [{"role": "user", "content": "Rewrite in plain English:\n\n" + row["clause"]}]
    enc = tok.apply_chat_template(
        msgs, add_generation_prompt=True, return_tensors="pt", return_dict=True
    ).to(model.device)
    with torch.inference_mode():
        out = model.generate(**enc, max_new_tokens=300, do_sample=False)
    text = tok.decode(out[0, enc["input_ids"].shape[1]:], skip_special_tokens=True)
    print(f"--- {i}")
    print("CLAUSE:", row["clause"])
    print("MODEL :", text.strip())
    print("GOLD  :", row["plain"])
