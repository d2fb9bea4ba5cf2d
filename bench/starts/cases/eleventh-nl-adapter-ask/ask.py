import json
import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "Qwen/Qwen2.5-0.5B-Instruct"
SYSTEM = "You turn a nurse's shorthand into a handover sentence."

tok = AutoTokenizer.from_pretrained(BASE)
model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map="cuda")
model = PeftModel.from_pretrained(model, "adapter").eval()

for line in open(sys.argv[1]):
    note = json.loads(line)["note"]
    chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": note}]
    text = tok.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    enc = tok(text, return_tensors="pt", add_special_tokens=False).to("cuda")
    with torch.no_grad():
        out = model.generate(**enc, max_new_tokens=96, do_sample=False)
    print(">", note)
    print("<", tok.decode(out[0, enc.input_ids.shape[1]:], skip_special_tokens=True), "\n")
