# torchrun --standalone --nproc_per_node 4 train_ddp.py
import os

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, set_seed

from rows import my_rows

NAME = "Qwen/Qwen2.5-3B-Instruct"


def main():
    dist.init_process_group("nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    set_seed(42)
    tok = AutoTokenizer.from_pretrained(NAME)
    loader = DataLoader(
        my_rows("data/contracts.jsonl", tok),
        batch_size=4,
        shuffle=True,
        drop_last=True,
        collate_fn=DataCollatorForSeq2Seq(tok),
    )
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16).to(local)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    model = DDP(model, device_ids=[local])
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-4)
    model.train()
    for epoch in range(2):
        for i, batch in enumerate(loader):
            loss = model(**batch.to(local)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if rank == 0 and i % 20 == 0:
                print(f"epoch {epoch} {i}/{len(loader)} loss {loss.item():.4f}")
    if rank == 0:
        model.module.save_pretrained("runs/contracts")
        tok.save_pretrained("runs/contracts")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
