# small lora loop, one gpu. usage: python train_loop.py notes.jsonl adapter
import json
import math
import random
import sys
import time

import torch
from peft import LoraConfig, get_peft_model
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

BASE = "Qwen/Qwen2.5-0.5B-Instruct"
BS, ACCUM, EPOCHS, LR = 8, 2, 3, 2e-4
SYSTEM = "You turn a nurse's shorthand into a handover sentence."

torch.manual_seed(0)
random.seed(0)
path, out = sys.argv[1], sys.argv[2]
tok = AutoTokenizer.from_pretrained(BASE)
END_OF_TURN = tok.convert_tokens_to_ids("<|im_end|>")


def encode(r):
    chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": r["note"]}]
    p = tok(tok.apply_chat_template(chat, tokenize=False, add_generation_prompt=True), add_special_tokens=False).input_ids
    a = tok(r["sentence"], add_special_tokens=False).input_ids + [END_OF_TURN]
    return torch.tensor(p + a), torch.tensor([-100] * len(p) + a)


def collate(batch):
    ids = pad_sequence([b[0] for b in batch], batch_first=True, padding_value=tok.pad_token_id)
    lab = pad_sequence([b[1] for b in batch], batch_first=True, padding_value=-100)
    lens = torch.tensor([len(b[0]) for b in batch])
    att = (torch.arange(ids.shape[1])[None] < lens[:, None]).long()
    return {"input_ids": ids, "attention_mask": att, "labels": lab}


rows = [json.loads(l) for l in open(path)]
random.shuffle(rows)
held, rows = rows[:100], rows[100:]
train = DataLoader([encode(r) for r in rows], batch_size=BS, shuffle=True, collate_fn=collate, drop_last=True)
valid = DataLoader([encode(r) for r in held], batch_size=BS, collate_fn=collate)

model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16).cuda()
model = torch.compile(model, dynamic=True)
model = get_peft_model(
    model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
)
model.print_trainable_parameters()

params = [p for p in model.parameters() if p.requires_grad]
for p in params:
    p.data = p.data.float()
opt = torch.optim.AdamW(params, lr=LR, weight_decay=0.0)
total = EPOCHS * math.ceil(len(train) / ACCUM)
sched = get_cosine_schedule_with_warmup(opt, int(0.05 * total), total)

step, t0 = 0, time.time()
for epoch in range(EPOCHS):
    model.train()
    run, seen = 0.0, 0
    for i, b in enumerate(train):
        b = {k: v.cuda() for k, v in b.items()}
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**b).loss / ACCUM
        loss.backward()
        run, seen = run + loss.item() * ACCUM, seen + 1
        if (i + 1) % ACCUM == 0 or i + 1 == len(train):
            gn = torch.nn.utils.clip_grad_norm_(params, 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step % 20 == 0:
                print(f"ep {epoch} step {step}/{total} loss {run / seen:.4f} gn {gn:.3f} lr {sched.get_last_lr()[0]:.2e} {time.time() - t0:.0f}s", flush=True)
                run, seen = 0.0, 0
    model.eval()
    with torch.no_grad():
        v = sum(model(**{k: x.cuda() for k, x in b.items()}).loss.item() for b in valid) / len(valid)
    print(f"ep {epoch} valid {v:.4f}", flush=True)

model.save_pretrained(out)
tok.save_pretrained(out)
