import os

import torch
import torch.distributed as dist
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

BASE = "Qwen/Qwen2.5-3B-Instruct"
ACCUM, EPOCHS = 4, 2


def encode(row, tok):
    head = tok.apply_chat_template(
        [{"role": "user", "content": row["prompt"]}], tokenize=False, add_generation_prompt=True
    )
    a = tok(head, add_special_tokens=False)["input_ids"]
    b = tok(row["completion"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": a + b, "attention_mask": [1] * len(a + b), "labels": [-100] * len(a) + b}


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.manual_seed(17)

    tok = AutoTokenizer.from_pretrained(BASE)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16).to(device)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    ddp_model = DDP(model, device_ids=[device.index])

    ds = load_dataset("json", data_files="mails.jsonl", split="train")
    ds = ds.map(encode, fn_kwargs={"tok": tok}, remove_columns=ds.column_names)
    sampler = DistributedSampler(ds, shuffle=True)
    loader = DataLoader(
        ds, batch_size=4, sampler=sampler, collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    )
    params = [p for p in ddp_model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(params, lr=2e-4)

    ddp_model.train()
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for i, batch in enumerate(loader):
            batch = batch.to(device)
            loss = model(**batch).loss
            (loss / ACCUM).backward()
            if (i + 1) % ACCUM == 0 or i + 1 == len(loader):
                torch.nn.utils.clip_grad_norm_(params, 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            if rank == 0 and i % 20 == 0:
                print(f"epoch {epoch} batch {i}/{len(loader)} loss {loss.item():.4f}", flush=True)

    if rank == 0:
        ddp_model.module.save_pretrained("out/mail-lora")
        tok.save_pretrained("out/mail-lora")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
