import json
import sys

import torch
from peft import PeftModel
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = "Qwen/Qwen2.5-3B-Instruct"
ADAPTER = sys.argv[1] if len(sys.argv) > 1 else "outputs/faq-lora"
TEST = "test.jsonl"
OUT = "preds.jsonl"
BS = 8

tok = AutoTokenizer.from_pretrained(BASE, padding_side="left")
model = AutoModelForCausalLM.from_pretrained(BASE, torch_dtype=torch.bfloat16, device_map="cuda")
model = PeftModel.from_pretrained(model, ADAPTER)
model.eval()

rows = [json.loads(l) for l in open(TEST, encoding="utf-8")]


def batches(xs, n):
    for i in range(0, len(xs), n):
        yield xs[i : i + n]


@torch.inference_mode()
def answer(batch):
    texts = [
        tok.apply_chat_template(
            [{"role": "user", "content": r["question"]}],
            tokenize=False,
            add_generation_prompt=True,
        )
        for r in batch
    ]
    enc = tok(texts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
    out = model.generate(**enc, max_new_tokens=256, do_sample=False, temperature=None, top_p=None, top_k=None)
    out = out[:, enc["input_ids"].shape[1] :]
    return tok.batch_decode(out, skip_special_tokens=False)


with open(OUT, "w", encoding="utf-8") as f:
    for b in tqdm(list(batches(rows, BS))):
        for r, a in zip(b, answer(b)):
            f.write(json.dumps({"question": r["question"], "reference": r["answer"], "prediction": a}, ensure_ascii=False) + "\n")

# exact match
n = ok = 0
for l in open(OUT, encoding="utf-8"):
    d = json.loads(l)
    n += 1
    ok += d["prediction"].strip() == d["reference"].strip()
print(f"EM {ok}/{n} = {ok / n:.3f}")
