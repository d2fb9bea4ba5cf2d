import json
import math
import random
import time
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

MODEL = "Qwen/Qwen2.5-7B-Instruct"
OUT = Path("out/sql-lora")
MAX_LEN = 2048
ACCUM = 16
EVAL_EVERY = 100
LR = 1e-4
device = "cuda"

random.seed(7)
torch.manual_seed(7)
torch.backends.cuda.matmul.allow_tf32 = True

tok = AutoTokenizer.from_pretrained(MODEL)


def encode(row):
    prompt = tok.apply_chat_template(
        [{"role": "system", "content": "Write one SQL query for the schema.\n" + row["schema"]},
         {"role": "user", "content": row["question"]}],
        tokenize=False, add_generation_prompt=True)
    p = tok(prompt, add_special_tokens=False).input_ids
    a = tok(row["sql"] + "<|im_end|>\n", add_special_tokens=False).input_ids
    ids = p + a
    return {"input_ids": ids, "labels": [-100] * len(p) + a} if len(ids) <= MAX_LEN else None


def collate(rows):
    n = max(len(r["input_ids"]) for r in rows)
    pad = lambda xs, v: torch.tensor([x + [v] * (n - len(x)) for x in xs])
    return {
        "input_ids": pad([r["input_ids"] for r in rows], tok.pad_token_id),
        "labels": pad([r["labels"] for r in rows], -100),
        "attention_mask": pad([[1] * len(r["input_ids"]) for r in rows], 0),
    }


def load(path):
    rows = [encode(json.loads(l)) for l in open(path)]
    return [r for r in rows if r]


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total, n = 0.0, 0
    for batch in loader:
        batch = {k: v.to(device) for k, v in batch.items()}
        k = (batch["labels"][:, 1:] != -100).sum().item()
        total += model(**batch).loss.item() * k
        n += k
    return total / n


model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2")
model.config.use_cache = False
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, task_type="CAUSAL_LM",
                                         target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))
model.to(device)
model.print_trainable_parameters()

train = DataLoader(load("data/train.jsonl"), batch_size=1, shuffle=True, collate_fn=collate)
val = DataLoader(load("data/val.jsonl"), batch_size=1, collate_fn=collate)
params = [p for p in model.parameters() if p.requires_grad]
opt = torch.optim.AdamW(params, lr=LR, weight_decay=0.0)
total_steps = math.ceil(len(train) / ACCUM)
sched = get_linear_schedule_with_warmup(opt, 20, total_steps)

step, losses, t0 = 0, [], time.time()
model.train()
for i, batch in enumerate(train):
    batch = {k: v.to(device) for k, v in batch.items()}
    loss = model(**batch).loss
    (loss / ACCUM).backward()
    losses.append(loss.item())
    if (i + 1) % ACCUM and i + 1 < len(train):
        continue
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()
    sched.step()
    opt.zero_grad(set_to_none=True)
    step += 1
    if step % 10 == 0:
        print(f"step {step}/{total_steps} loss {sum(losses) / len(losses):.4f} "
              f"peak {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB {time.time() - t0:.0f}s", flush=True)
        losses = []
        torch.cuda.reset_peak_memory_stats()
    if step % EVAL_EVERY == 0:
        print(f"step {step} val loss {evaluate(model, val):.4f} "
              f"peak {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB", flush=True)
        model.save_pretrained(OUT / f"step-{step}")

model.save_pretrained(OUT / "final")
tok.save_pretrained(OUT / "final")
