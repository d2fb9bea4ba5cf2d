import json

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "Qwen/Qwen2.5-7B-Instruct"
ADAPTER = "outputs/pir-qwen25-7b"

tok = AutoTokenizer.from_pretrained(ADAPTER)
model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16, device_map="cuda")
model = PeftModel.from_pretrained(model, ADAPTER).eval()

with open("data/reviews_eval.jsonl") as f, open("preds.jsonl", "w") as out:
    for line in f:
        row = json.loads(line)
        enc = tok.apply_chat_template(
            row["prompt"], add_generation_prompt=True, return_tensors="pt", return_dict=True
        ).to("cuda")
        with torch.no_grad():
            ids = model.generate(**enc, max_new_tokens=4096, do_sample=False)
        new = ids[0, enc["input_ids"].shape[1]:]
        stopped = bool(new[-1].item() in model.generation_config.eos_token_id)
        out.write(json.dumps({
            "prompt": row["prompt"],
            "prediction": tok.decode(new, skip_special_tokens=True),
            "reference": row["completion"][0]["content"],
            "new_tokens": len(new),
            "stopped": stopped,
        }, ensure_ascii=False) + "\n")
