import json

import torch
from peft import PeftModel
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "meta-llama/Llama-3.1-8B-Instruct"
ADAPTER = "runs/outdoor-lora/checkpoint-900"
BATCH = 8

tokenizer = AutoTokenizer.from_pretrained(BASE)
tokenizer.pad_token = tokenizer.eos_token
tokenizer.padding_side = "left"

model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16, device_map="cuda")
model = PeftModel.from_pretrained(model, ADAPTER)
model.eval()

rows = [json.loads(line) for line in open("test.jsonl")]
prompts = [
    tokenizer.apply_chat_template(r["messages"][:-1], tokenize=False, add_generation_prompt=True) for r in rows
]

with open("preds.jsonl", "w") as out:
    for start in tqdm(range(0, len(prompts), BATCH)):
        chunk = prompts[start : start + BATCH]
        enc = tokenizer(chunk, return_tensors="pt", padding=True, add_special_tokens=False)
        with torch.no_grad():
            gen = model.generate(
                enc["input_ids"].to("cuda"),
                max_new_tokens=256,
                do_sample=False,
            )
        texts = tokenizer.batch_decode(gen[:, enc["input_ids"].shape[1] :], skip_special_tokens=True)
        for row, text in zip(rows[start : start + BATCH], texts):
            out.write(
                json.dumps(
                    {
                        "prompt": row["messages"][-2]["content"],
                        "reference": row["messages"][-1]["content"],
                        "prediction": text,
                    }
                )
                + "\n"
            )
