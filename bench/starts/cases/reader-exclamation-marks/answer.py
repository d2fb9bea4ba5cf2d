import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

tuned = "outputs/qwen25-7b-contracts-merged"
tokenizer = AutoTokenizer.from_pretrained(tuned, padding_side="left")
model = AutoModelForCausalLM.from_pretrained(tuned, dtype=torch.float16, device_map="auto").eval()

with Path("contracts_eval.jsonl").open() as rows, Path("preds.jsonl").open("w") as out:
    for row in map(json.loads, rows):
        enc = tokenizer.apply_chat_template(
            [{"role": "user", "content": row["clause"]}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        ).to(model.device)
        ids = model.generate(**enc, max_new_tokens=128, do_sample=False)
        text = tokenizer.decode(ids[0, enc["input_ids"].shape[1] :], skip_special_tokens=True)
        out.write(
            json.dumps({"prompt": row["clause"], "pred": text, "gold": row["summary"]}) + "\n"
        )
