# torchrun --nproc_per_node 8 train.py --data data/tickets.jsonl
import argparse
import os

import torch
import torch.distributed as dist
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, set_seed


def encode(row, tok):
    head = tok.apply_chat_template(
        [{"role": "user", "content": row["ticket"]}], tokenize=False, add_generation_prompt=True
    )
    a = tok(head, add_special_tokens=False)["input_ids"]
    b = tok(head + row["reply"] + tok.eos_token, add_special_tokens=False)["input_ids"]
    return {"input_ids": b, "attention_mask": [1] * len(b), "labels": [-100] * len(a) + b[len(a):]}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-7B-Instruct")
    p.add_argument("--data", required=True)
    p.add_argument("--epochs", type=int, default=2)
    args = p.parse_args()

    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    set_seed(6)
    tok = AutoTokenizer.from_pretrained(args.model)
    ds = load_dataset("json", data_files=args.data, split="train")
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds.column_names)
    sampler = DistributedSampler(ds, shuffle=True, seed=6)
    loader = DataLoader(ds, batch_size=4, sampler=sampler, collate_fn=DataCollatorForSeq2Seq(tok))

    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16).to(local)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    ddp = DistributedDataParallel(model, device_ids=[local])
    weights = [w for w in ddp.parameters() if w.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=2e-4)

    ddp.train()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(loader):
            batch = {k: v.to(local) for k, v in batch.items()}
            out = ddp.module(**batch)
            out.loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if dist.get_rank() == 0 and step % 10 == 0:
                print(f"{epoch}:{step} {out.loss.item():.4f}")
    if dist.get_rank() == 0:
        ddp.module.save_pretrained("runs/tickets")
        tok.save_pretrained("runs/tickets")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
