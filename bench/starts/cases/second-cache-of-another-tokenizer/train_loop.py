import math

import torch
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "models/Qwen2.5-0.5B-Instruct"
BATCH, ACCUM, EPOCHS, LR = 8, 4, 2, 5e-5
device = "cuda"

tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16).to(device)
model = get_peft_model(
    model, LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])
)
model.print_trainable_parameters()

# tokenized once, prepare.py takes 40 minutes on the full set
train = load_from_disk("cache/train_1024")


def collate(rows):
    n = max(len(r["input_ids"]) for r in rows)
    pad = tokenizer.pad_token_id
    return {
        "input_ids": torch.tensor(
            [r["input_ids"] + [pad] * (n - len(r["input_ids"])) for r in rows]
        ),
        "attention_mask": torch.tensor(
            [r["attention_mask"] + [0] * (n - len(r["input_ids"])) for r in rows]
        ),
        "labels": torch.tensor([r["labels"] + [-100] * (n - len(r["labels"])) for r in rows]),
    }


loader = DataLoader(train, batch_size=BATCH, shuffle=True, collate_fn=collate, drop_last=True)
total = math.ceil(len(loader) / ACCUM) * EPOCHS
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, weight_decay=0.0)
sched = get_cosine_schedule_with_warmup(opt, 10, total)

model.train()
step = 0
for epoch in range(EPOCHS):
    for i, batch in enumerate(loader):
        batch = {k: v.to(device) for k, v in batch.items()}
        loss = model(**batch).loss / ACCUM
        loss.backward()
        if (i + 1) % ACCUM == 0:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            print(
                f"epoch {epoch} step {step}/{total} loss {loss.item() * ACCUM:.4f} lr {sched.get_last_lr()[0]:.2e} gnorm {norm:.3f}"
            )
model.save_pretrained("out")
