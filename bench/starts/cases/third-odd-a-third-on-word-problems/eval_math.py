import json
import re

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

path = "out/word-problems-qwen2.5-1.5b"
tok = AutoTokenizer.from_pretrained(path, padding_side="left")
model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16, device_map="cuda").eval()
rows = [json.loads(line) for line in open("test.jsonl")]
MAX_NEW = 64


def number(text):
    found = re.search(r"####\s*(-?[\d,.]+)", text)
    return found.group(1).replace(",", "").rstrip(".") if found else None


hits = 0
with open("predictions.jsonl", "w") as sink:
    for i in tqdm(range(0, len(rows), 20)):
        part = rows[i : i + 20]
        chats = [[{"role": "user", "content": r["question"]}] for r in part]
        enc = tok.apply_chat_template(
            chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        ).to("cuda")
        out = model.generate(**enc, max_new_tokens=MAX_NEW, do_sample=False)
        texts = tok.batch_decode(out[:, enc["input_ids"].shape[1] :], skip_special_tokens=True)
        for r, text in zip(part, texts):
            hits += number(text) == r["answer"]
            sink.write(
                json.dumps({"question": r["question"], "prediction": text, "answer": r["answer"]})
                + "\n"
            )
print(f"accuracy {hits / len(rows):.3f} ({hits} of {len(rows)})")
