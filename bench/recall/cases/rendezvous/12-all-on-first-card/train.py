import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from transformers import (AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq,
                          get_cosine_schedule_with_warmup, set_seed)

from setup_dist import start

BASE = "Qwen/Qwen2.5-1.5B-Instruct"
EPOCHS = 2


def encode(row, tok):
    head = tok.apply_chat_template([{"role": "user", "content": row["question"]}],
                                   tokenize=False, add_generation_prompt=True)
    p = tok(head, add_special_tokens=False)["input_ids"]
    a = tok(row["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": p + a, "attention_mask": [1] * len(p + a), "labels": [-100] * len(p) + a}


def main():
    rank, world, device = start()
    set_seed(25)
    tok = AutoTokenizer.from_pretrained(BASE)
    rows = load_dataset("openai/gsm8k", "main", split="train")
    rows = rows.map(encode, fn_kwargs={"tok": tok}, remove_columns=rows.column_names)
    sampler = DistributedSampler(rows, num_replicas=world, rank=rank, shuffle=True, seed=25)
    loader = DataLoader(rows, batch_size=8, sampler=sampler,
                        collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100))
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16).to(device)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear",
                                             task_type="CAUSAL_LM"))
    model = DistributedDataParallel(model, device_ids=[device.index])
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    total = len(loader) * EPOCHS
    sched = get_cosine_schedule_with_warmup(opt, int(0.03 * total), total)
    model.train()
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(loader):
            batch = {k: v.to(device) for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            if rank == 0 and step % 20 == 0:
                print(epoch, step, round(loss.item(), 4), flush=True)
    if rank == 0:
        model.module.save_pretrained("runs/gsm8k/adapter")
        tok.save_pretrained("runs/gsm8k/adapter")


if __name__ == "__main__":
    main()
