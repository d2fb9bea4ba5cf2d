"""LoRA on the plant-maintenance QA set. torchrun --nproc_per_node=2 train_qa.py"""
import json
import os

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

BASE = "Qwen/Qwen2.5-3B-Instruct"
LORA = dict(r=16, lora_alpha=32, lora_dropout=0.0, task_type="CAUSAL_LM",
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])
EPOCHS, BATCH, LR, MAX_LEN = 4, 8, 2e-4, 1024


def encode(tok, r):
    prompt = tok.apply_chat_template([{"role": "user", "content": r["question"]}], tokenize=False, add_generation_prompt=True)
    p = tok(prompt, add_special_tokens=False)["input_ids"]
    a = tok(r["answer"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    return (p + a)[:MAX_LEN], ([-100] * len(p) + a)[:MAX_LEN]


def collate(rows, pad):
    n = max(len(i) for i, _ in rows)
    return (
        torch.tensor([i + [pad] * (n - len(i)) for i, _ in rows]),
        torch.tensor([[1] * len(i) + [0] * (n - len(i)) for i, _ in rows]),
        torch.tensor([l + [-100] * (n - len(l)) for _, l in rows]),
    )


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    dev = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(dev)
    torch.manual_seed(0)

    tok = AutoTokenizer.from_pretrained(BASE)
    with open("data/qa_train.jsonl") as f:
        data = [encode(tok, json.loads(x)) for x in f]
    sampler = DistributedSampler(data, shuffle=True, seed=0)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler, collate_fn=lambda b: collate(b, tok.pad_token_id))

    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(**LORA)).to(dev)
    if rank == 0:
        model.print_trainable_parameters()
    model = DistributedDataParallel(model, device_ids=[dev])

    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=LR)
    steps = EPOCHS * len(loader)
    sched = get_linear_schedule_with_warmup(opt, steps // 20, steps)

    n = 0
    model.train()
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for ids, mask, labels in loader:
            out = model(input_ids=ids.to(dev), attention_mask=mask.to(dev), labels=labels.to(dev))
            out.loss.backward()
            torch.nn.utils.clip_grad_norm_(params, 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
            n += 1
            if rank == 0 and n % 20 == 0:
                print(f"epoch {epoch} step {n}/{steps} loss {out.loss.item():.4f}", flush=True)

    if rank == 0:
        os.makedirs("out/qa-lora", exist_ok=True)
        lora = {k: v.cpu() for k, v in model.state_dict().items() if "lora_" in k}
        torch.save(lora, "out/qa-lora/lora.pt")
        print(f"saved {len(lora)} tensors")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
