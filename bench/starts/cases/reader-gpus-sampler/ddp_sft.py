import os

import torch
import torch.distributed as dist
from datasets import load_from_disk
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
torch.manual_seed(1234)

base = "mistralai/Mistral-7B-v0.3"
tokenizer = AutoTokenizer.from_pretrained(base)
tokenizer.pad_token = tokenizer.unk_token
model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16, use_cache=False).to(
    local_rank
)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model = DistributedDataParallel(model, device_ids=[local_rank])

train_set = load_from_disk("tokenized/train").with_format("torch")
train_loader = DataLoader(
    train_set,
    batch_size=4,
    shuffle=True,
    num_workers=2,
    collate_fn=DataCollatorForSeq2Seq(tokenizer, padding=True),
)

optimizer = torch.optim.AdamW(model.parameters(), lr=8e-6)
total_steps = 3 * len(train_loader)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total_steps)

model.train()
for epoch in range(3):
    for i, batch in enumerate(train_loader):
        batch = {k: v.to(local_rank) for k, v in batch.items()}
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        if local_rank == 0 and i % 20 == 0:
            print(f"epoch {epoch} iter {i}/{len(train_loader)} loss {loss.item():.3f}", flush=True)

if dist.get_rank() == 0:
    model.module.save_pretrained("mistral-sft")
    tokenizer.save_pretrained("mistral-sft")
dist.barrier()
dist.destroy_process_group()
