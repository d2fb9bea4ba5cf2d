import os

import torch
import torch.distributed as dist
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, set_seed

BASE = "Qwen/Qwen2.5-1.5B-Instruct"
EPOCHS = 2


def encode(row, tok):
    head = tok.apply_chat_template([{"role": "user", "content": row["question"]}],
                                   tokenize=False, add_generation_prompt=True)
    p = tok(head, add_special_tokens=False)["input_ids"]
    a = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": p + a, "attention_mask": [1] * len(p + a), "labels": [-100] * len(p) + a}


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    total = torch.zeros(2, device=device)
    for batch in loader:
        batch = {k: v.to(device) for k, v in batch.items()}
        tokens = (batch["labels"][:, 1:] != -100).sum()
        total[0] += model.module(**batch).loss * tokens
        total[1] += tokens
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device = torch.device("cuda", local_rank)
    set_seed(1)

    tok = AutoTokenizer.from_pretrained(BASE)
    ds = load_dataset("openai/gsm8k", "main")
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds["train"].column_names)
    collate = DataCollatorForSeq2Seq(tok, padding=True, label_pad_token_id=-100)
    sampler = DistributedSampler(ds["train"], shuffle=True, seed=1)
    train = DataLoader(ds["train"], batch_size=8, sampler=sampler, collate_fn=collate)
    test = DataLoader(ds["test"], batch_size=8, collate_fn=collate,
                      sampler=DistributedSampler(ds["test"], shuffle=False))

    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16).to(device)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear",
                                             task_type="CAUSAL_LM"))
    model = DDP(model, device_ids=[local_rank])
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)

    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(train):
            batch = {k: v.to(device) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
        if rank == 0:
            value = evaluate(model, test, device)
            print(f"epoch {epoch} eval loss {value:.4f}", flush=True)

    if rank == 0:
        model.module.save_pretrained("runs/ddp/adapter")
        tok.save_pretrained("runs/ddp/adapter")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
