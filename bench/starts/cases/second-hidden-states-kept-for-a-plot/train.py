import json
import time

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

NAME = "Qwen/Qwen2.5-1.5B"
tok = AutoTokenizer.from_pretrained(NAME)
model = AutoModelForCausalLM.from_pretrained(NAME, torch_dtype=torch.bfloat16).cuda()
model.gradient_checkpointing_enable()
model.config.use_cache = False

rows = [json.loads(line) for line in open("data/train.jsonl")]


def collate(batch):
    texts = [r["prompt"] + r["completion"] + tok.eos_token for r in batch]
    enc = tok(texts, padding=True, truncation=True, max_length=1024, return_tensors="pt")
    labels = enc.input_ids.clone()
    labels[enc.attention_mask == 0] = -100
    for i, r in enumerate(batch):
        labels[i, : len(tok(r["prompt"]).input_ids)] = -100
    enc["labels"] = labels
    return enc


loader = DataLoader(
    rows, batch_size=4, shuffle=True, collate_fn=collate, num_workers=2, pin_memory=True
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.95), weight_decay=0.1)
scheduler = get_linear_schedule_with_warmup(optimizer, 50, 3 * len(loader))

model.train()
for epoch in range(3):
    epoch_loss, t0 = 0.0, time.time()
    hidden = []
    for step, batch in enumerate(loader):
        batch = batch.to("cuda", non_blocking=True)
        out = model(**batch, output_hidden_states=True)
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        epoch_loss += out.loss.item()
        # for the drift plot at the end of the epoch
        hidden.append(out.hidden_states[-1])
        if step % 50 == 0:
            gb = torch.cuda.memory_allocated() / 2**30
            print(
                f"epoch {epoch} step {step} loss {out.loss.item():.4f} mem {gb:.2f} GiB {time.time() - t0:.0f}s",
                flush=True,
            )
    print(f"epoch {epoch} mean loss {epoch_loss / len(loader):.4f}")
    torch.save([h.mean(dim=1).float().cpu() for h in hidden], f"drift_{epoch}.pt")
model.save_pretrained("out")
