import sys

import torch
from accelerate import Accelerator
from datasets import load_dataset
from omegaconf import OmegaConf
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from objective import next_token_loss


def main():
    cfg = OmegaConf.load(sys.argv[1])
    acc = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=cfg.accumulate)
    tok = AutoTokenizer.from_pretrained(cfg.model, padding_side="right")
    tok.pad_token = cfg.pad_token
    model = AutoModelForCausalLM.from_pretrained(cfg.model, dtype=torch.bfloat16)
    lora = OmegaConf.to_container(cfg.lora)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **lora))

    def collate(rows):
        texts = [r["poem"].strip() + tok.eos_token for r in rows]
        return tok(texts, padding="longest", truncation=True, max_length=cfg.max_length, return_tensors="pt")

    ds = load_dataset("json", data_files=cfg.data, split="train")
    loader = DataLoader(ds, batch_size=cfg.batch_size, shuffle=True, collate_fn=collate)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=cfg.lr, weight_decay=0.0)
    total = cfg.epochs * len(loader) // cfg.accumulate
    sched = get_cosine_schedule_with_warmup(opt, total // 20, total)
    model, opt, loader, sched = acc.prepare(model, opt, loader, sched)

    model.train()
    for epoch in range(cfg.epochs):
        for i, batch in enumerate(loader):
            with acc.accumulate(model):
                loss = next_token_loss(model, batch["input_ids"], batch["attention_mask"])
                acc.backward(loss)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                opt.zero_grad()
            if i % 25 == 0:
                acc.print(f"{epoch} {i} {loss.item():.4f}")
    if acc.is_main_process:
        acc.unwrap_model(model).save_pretrained(cfg.out)
        tok.save_pretrained(cfg.out)


if __name__ == "__main__":
    main()
