import json
import random
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_scheduler

MODEL = "Qwen/Qwen2.5-7B-Instruct"
BS, EPOCHS, LR = 4, 3, 1e-4

acc = Accelerator(mixed_precision="bf16")
set_seed(5)
tok = AutoTokenizer.from_pretrained(MODEL)


def encode(m):
    p = tok(tok.apply_chat_template(m[:-1], add_generation_prompt=True, tokenize=False), add_special_tokens=False)
    t = tok(tok.apply_chat_template(m, tokenize=False), add_special_tokens=False)
    n = len(p["input_ids"])
    return {"input_ids": t["input_ids"], "labels": [-100] * n + t["input_ids"][n:]}


def collate(rows):
    n = max(len(r["input_ids"]) for r in rows)
    pad = lambda x, v: x + [v] * (n - len(x))
    return {
        "input_ids": torch.tensor([pad(r["input_ids"], tok.pad_token_id) for r in rows]),
        "attention_mask": torch.tensor([pad([1] * len(r["input_ids"]), 0) for r in rows]),
        "labels": torch.tensor([pad(r["labels"], -100) for r in rows]),
    }


rows = [encode(json.loads(x)["messages"]) for x in open("incidents.jsonl")]
dl = DataLoader(rows, BS, shuffle=True, collate_fn=collate)
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16, attn_implementation="flash_attention_2")
model.config.use_cache = False
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.enable_input_require_grads()
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR)
model, opt, dl = acc.prepare(model, opt, dl)
total = EPOCHS * len(dl)
sched = get_scheduler("cosine", opt, num_warmup_steps=10, num_training_steps=total)

step = 0
for epoch in range(EPOCHS):
    for batch in dl:
        loss = model(**batch).loss
        acc.backward(loss)
        acc.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad()
        step += 1
        if step % 5 == 0:
            peak = torch.cuda.max_memory_allocated() / 2**30
            acc.print(f"step {step}/{total} loss {loss.item():.4f} peak {peak:.1f} GiB", flush=True)

acc.unwrap_model(model).save_pretrained("incidents-lora")
