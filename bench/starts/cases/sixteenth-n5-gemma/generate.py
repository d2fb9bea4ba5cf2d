import json

import torch
from peft import PeftModel
from transformers import AutoTokenizer, Gemma3ForCausalLM

base = Gemma3ForCausalLM.from_pretrained(
    "google/gemma-3-4b-it", torch_dtype=torch.bfloat16, device_map="cuda"
)
model = PeftModel.from_pretrained(base, "gemma3-plain/final")
model.eval()
tokenizer = AutoTokenizer.from_pretrained("gemma3-plain/final")

with open("heldout.jsonl") as f, open("preds.jsonl", "w") as out:
    for line in f:
        row = json.loads(line)
        ids = tokenizer.apply_chat_template(
            row["prompt"], add_generation_prompt=True, return_tensors="pt", return_dict=True
        ).to("cuda")
        with torch.no_grad():
            gen = model.generate(**ids, max_new_tokens=200, do_sample=False)
        text = tokenizer.decode(gen[0, ids["input_ids"].shape[1]:], skip_special_tokens=True)
        out.write(json.dumps({
            "prompt": row["prompt"][0]["content"],
            "reference": row["completion"][0]["content"],
            "prediction": text,
        }) + "\n")
print("done")
