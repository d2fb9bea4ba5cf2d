import json
import sys

import torch
from peft import PeftConfig, get_peft_model
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

ADAPTER = "runs/sql-r16/adapter"
SYS = "Translate the question into one SQLite query for the given schema."

peft_cfg = PeftConfig.from_pretrained(ADAPTER)
tok = AutoTokenizer.from_pretrained(ADAPTER, padding_side="left")

base = AutoModelForCausalLM.from_pretrained(
    peft_cfg.base_model_name_or_path,
    torch_dtype=torch.bfloat16,
    device_map="cuda:0",
)
model = get_peft_model(base, peft_cfg)
model.eval()


@torch.inference_mode()
def answer(batch):
    prompts = [
        tok.apply_chat_template(
            [
                {"role": "system", "content": SYS},
                {"role": "user", "content": f"{r['schema']}\n\n{r['question']}"},
            ],
            add_generation_prompt=True,
            tokenize=False,
        )
        for r in batch
    ]
    enc = tok(prompts, return_tensors="pt", padding=True, add_special_tokens=False).to(model.device)
    out = model.generate(**enc, max_new_tokens=256, do_sample=False)
    return tok.batch_decode(out[:, enc["input_ids"].shape[1]:], skip_special_tokens=True)


rows = [json.loads(l) for l in open("data/dev.jsonl")]
B = 8
with open(sys.argv[1] if len(sys.argv) > 1 else "preds.jsonl", "w") as f:
    for i in tqdm(range(0, len(rows), B)):
        batch = rows[i:i + B]
        for r, a in zip(batch, answer(batch)):
            f.write(json.dumps({
                "prompt": f"{r['schema']}\n\n{r['question']}",
                "prediction": a,
                "reference": r["sql"],
            }) + "\n")
