import json
import os

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = os.environ.get("BASE", "models/SmolLM2-135M-Instruct")
tok = AutoTokenizer.from_pretrained(BASE)
model = AutoModelForCausalLM.from_pretrained(BASE)
model = torch.compile(model)  # 1.6x on the A10
model = get_peft_model(
    model,
    LoraConfig(
        r=16,
        lora_alpha=32,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
    ),
)
model.to("cuda" if torch.cuda.is_available() else "cpu").train()

rows = [json.loads(line) for line in open("data/train.jsonl")]


def encode(row):
    ids = tok.apply_chat_template(row["messages"], return_dict=False)
    head = tok.apply_chat_template(
        row["messages"][:-1], add_generation_prompt=True, return_dict=False
    )
    return ids[:512], ([-100] * len(head) + ids[len(head) :])[:512]


def collate(batch):
    enc = [encode(r) for r in batch]
    n = max(len(i) for i, _ in enc)
    return {
        "input_ids": torch.tensor([i + [0] * (n - len(i)) for i, _ in enc]),
        "attention_mask": torch.tensor([[1] * len(i) + [0] * (n - len(i)) for i, _ in enc]),
        "labels": torch.tensor([l + [-100] * (n - len(l)) for _, l in enc]),
    }


opt = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=2e-4)
for epoch in range(3):
    for step, batch in enumerate(DataLoader(rows, 8, shuffle=True, collate_fn=collate)):
        batch = {k: v.to(model.device) for k, v in batch.items()}
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        if step % 10 == 0:
            print(f"{epoch} {step} {loss.item():.4f}", flush=True)
model.save_pretrained("outputs/adapter")
tok.save_pretrained("outputs/adapter")
