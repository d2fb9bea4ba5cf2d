# torchrun --standalone --nproc_per_node 4 train_ddp.py
import os

import torch
import torch.distributed as dist
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, set_seed

NAME = "Qwen/Qwen2.5-7B-Instruct"
OUT = "runs/contracts"
EPOCHS = 2


def encode(row, tok):
    head = tok.apply_chat_template(
        [{"role": "user", "content": row["question"]}], tokenize=False, add_generation_prompt=True
    )
    a = tok(head, add_special_tokens=False)["input_ids"]
    b = tok(head + row["answer"] + tok.eos_token, add_special_tokens=False)["input_ids"]
    return {"input_ids": b, "attention_mask": [1] * len(b), "labels": [-100] * len(a) + b[len(a):]}


def main():
    dist.init_process_group("nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    set_seed(42 + rank)

    tok = AutoTokenizer.from_pretrained(NAME)
    ds = load_dataset("json", data_files="data/contracts.jsonl", split="train")
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds.column_names)
    ds = ds.filter(lambda r: len(r["input_ids"]) <= 1024)
    loader = DataLoader(
        ds, batch_size=4, shuffle=True, collate_fn=DataCollatorForSeq2Seq(tok), num_workers=2
    )

    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16).to(local)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    model = DDP(model, device_ids=[local])
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=2e-4)

    model.train()
    for epoch in range(EPOCHS):
        for i, batch in enumerate(loader):
            loss = model(**batch.to(local)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if rank == 0 and i % 20 == 0:
                print(f"epoch {epoch} {i}/{len(loader)} loss {loss.item():.4f}")
    if rank == 0:
        model.module.save_pretrained(OUT)
        tok.save_pretrained(OUT)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
