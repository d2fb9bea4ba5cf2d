"""LoRA on Llama-3.1-8B, plain accelerate loop (one A100 80GB)."""
import json
from datetime import datetime

import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
MAX_LEN = 4096
MICRO = 4
ACCUM = 2
EPOCHS = 2
EVAL_EVERY = 200


def load(path, tok):
    out = []
    for line in open(path):
        msgs = json.loads(line)["messages"]
        prompt = tok.apply_chat_template(msgs[:-1], add_generation_prompt=True, tokenize=False)
        full = tok.apply_chat_template(msgs, tokenize=False)
        n = len(tok(prompt, add_special_tokens=False).input_ids)
        ids = tok(full, add_special_tokens=False).input_ids[:MAX_LEN]
        if n < len(ids):
            out.append({"input_ids": ids, "labels": [-100] * n + ids[n:]})
    return out


def collate_for(pad_id):
    def collate(rows):
        width = max(len(r["input_ids"]) for r in rows)
        ids, labels, mask = [], [], []
        for r in rows:
            gap = width - len(r["input_ids"])
            ids.append(r["input_ids"] + [pad_id] * gap)
            labels.append(r["labels"] + [-100] * gap)
            mask.append([1] * len(r["input_ids"]) + [0] * gap)
        return {k: torch.tensor(v) for k, v in (("input_ids", ids), ("labels", labels), ("attention_mask", mask))}

    return collate


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total, n = 0.0, 0
    for batch in loader:
        total += model(**batch).loss.item()
        n += 1
    return total / n


def say(text):
    print(datetime.now().strftime("%H:%M:%S"), text, flush=True)


def main():
    acc = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=ACCUM)
    tok = AutoTokenizer.from_pretrained(MODEL)
    pad_id = tok.convert_tokens_to_ids("<|finetune_right_pad_id|>")
    model = AutoModelForCausalLM.from_pretrained(
        MODEL, dtype=torch.bfloat16, attn_implementation="flash_attention_2", use_cache=False
    )
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    model.print_trainable_parameters()

    train, dev = load("train.jsonl", tok), load("dev.jsonl", tok)
    collate = collate_for(pad_id)
    train_loader = DataLoader(train, batch_size=MICRO, shuffle=True, collate_fn=collate, drop_last=True)
    dev_loader = DataLoader(dev, batch_size=MICRO, collate_fn=collate)
    per_epoch = len(train_loader) // ACCUM
    print(f"{len(train)} train rows, {len(dev)} eval rows, {per_epoch} optimizer steps per epoch")

    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.0)
    sched = get_cosine_schedule_with_warmup(opt, 30, EPOCHS * per_epoch)
    model, opt, train_loader, dev_loader, sched = acc.prepare(model, opt, train_loader, dev_loader, sched)

    model.train()
    step = 0
    for epoch in range(EPOCHS):
        for batch in train_loader:
            with acc.accumulate(model):
                loss = model(**batch).loss
                acc.backward(loss)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
            if not acc.sync_gradients:
                continue
            step += 1
            if step % 10 == 0:
                peak = torch.cuda.max_memory_allocated() / 2**30
                say(f"step {step}/{EPOCHS * per_epoch} loss {loss.item():.3f} "
                    f"lr {sched.get_last_lr()[0]:.1e} peak {peak:.1f}GB")
            if step % EVAL_EVERY == 0:
                say(f"step {step} eval loss {evaluate(model, dev_loader):.3f}")
        model.train()

    acc.unwrap_model(model).save_pretrained("out-lora", safe_serialization=True)
    tok.save_pretrained("out-lora")


if __name__ == "__main__":
    main()
