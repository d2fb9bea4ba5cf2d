import json
import sys

import torch
from peft import PeftModel
from transformers import AutoTokenizer, Gemma3ForCausalLM

BASE = "google/gemma-3-4b-it"
ADAPTER = "out/gemma3-tickets"

tok = AutoTokenizer.from_pretrained(ADAPTER)
base = Gemma3ForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16, device_map="cuda:0")
model = PeftModel.from_pretrained(base, ADAPTER)
model.eval()

rows = [json.loads(l) for l in open(sys.argv[1])]
with open("preds.jsonl", "w") as f:
    for row in rows:
        msgs = [{"role": "user", "content": f"Classify and route this ticket:\n\n{row['ticket']}"}]
        enc = tok.apply_chat_template(msgs, add_generation_prompt=True, return_tensors="pt", return_dict=True).to("cuda:0")
        with torch.inference_mode():
            out = model.generate(**enc, max_new_tokens=200, do_sample=False)
        text = tok.decode(out[0, enc["input_ids"].shape[1]:], skip_special_tokens=True)
        f.write(json.dumps({"ticket": row["ticket"], "reference": row["routing_json"], "prediction": text}) + "\n")
print("done", len(rows))
