import json
import time

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

CFG = dict(
    model="Qwen/Qwen2.5-7B-Instruct",
    train="data/train.jsonl",
    val="data/val.jsonl",
    seq_len=2048,
    batch_size=4,
    grad_accum=4,
    lr=1e-4,
    warmup=30,
    max_epochs=2,
    eval_every=200,
    log_every=10,
    out="runs/qwen7b-lora",
)

device = torch.device("cuda")
tokenizer = AutoTokenizer.from_pretrained(CFG["model"])


def load(path):
    rows = []
    for line in open(path):
        m = json.loads(line)["messages"]
        prompt = tokenizer.apply_chat_template(m[:-1], tokenize=False, add_generation_prompt=True)
        answer = m[-1]["content"] + "<|im_end|>\n"
        p = tokenizer(prompt)["input_ids"]
        a = tokenizer(answer)["input_ids"]
        if len(p) + len(a) <= CFG["seq_len"]:
            rows.append((p, a))
    return rows


def collate(rows):
    n = max(len(p) + len(a) for p, a in rows)
    ids = torch.full((len(rows), n), tokenizer.pad_token_id)
    lab = torch.full((len(rows), n), -100)
    att = torch.zeros((len(rows), n), dtype=torch.long)
    for i, (p, a) in enumerate(rows):
        ids[i, : len(p) + len(a)] = torch.tensor(p + a)
        lab[i, len(p) : len(p) + len(a)] = torch.tensor(a)
        att[i, : len(p) + len(a)] = 1
    return ids, lab, att


def step_loss(model, batch):
    ids, lab, att = (t.to(device, non_blocking=True) for t in batch)
    logits = model(input_ids=ids, attention_mask=att).logits
    return F.cross_entropy(
        logits[:, :-1].reshape(-1, logits.size(-1)), lab[:, 1:].reshape(-1), ignore_index=-100
    )


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total = 0.0
    for batch in loader:
        total += step_loss(model, batch).item()
    return total / len(loader)


def main():
    model = AutoModelForCausalLM.from_pretrained(
        CFG["model"], torch_dtype=torch.bfloat16, attn_implementation="flash_attention_2"
    ).to(device)
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    model.print_trainable_parameters()

    train_dl = DataLoader(load(CFG["train"]), CFG["batch_size"], shuffle=True, collate_fn=collate, num_workers=2)
    val_dl = DataLoader(load(CFG["val"]), CFG["batch_size"], collate_fn=collate)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=CFG["lr"])
    steps = CFG["max_epochs"] * (len(train_dl) // CFG["grad_accum"])
    sched = LambdaLR(opt, lambda s: min(1.0, (s + 1) / CFG["warmup"]) * max(0.0, 1 - s / steps))

    step, acc, t0 = 0, 0.0, time.time()
    for epoch in range(CFG["max_epochs"]):
        model.train()
        for i, batch in enumerate(train_dl, 1):
            loss = step_loss(model, batch) / CFG["grad_accum"]
            loss.backward()
            acc += loss.item()
            if i % CFG["grad_accum"]:
                continue
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step % CFG["log_every"] == 0:
                mem = torch.cuda.max_memory_allocated() / 2**30
                torch.cuda.reset_peak_memory_stats()
                print(
                    f"[{epoch}] {step:5d}/{steps} loss {acc / CFG['log_every']:.4f} "
                    f"lr {sched.get_last_lr()[0]:.2e} peak {mem:.1f} GiB {time.time() - t0:.0f}s",
                    flush=True,
                )
                acc = 0.0
            if step % CFG["eval_every"] == 0:
                print(f"val loss {evaluate(model, val_dl):.4f}", flush=True)
                model.save_pretrained(f"{CFG['out']}/step-{step}")
    model.save_pretrained(CFG["out"])


if __name__ == "__main__":
    main()
