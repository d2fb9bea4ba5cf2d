import sys

import torch
import torch.nn.functional as F
import yaml
from accelerate import Accelerator
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup


def lm_loss(logits, ids, tok):
    logits = logits[:, :-1].float()
    return F.cross_entropy(logits.reshape(-1, logits.size(-1)), ids[:, 1:].reshape(-1), ignore_index=tok.pad_token_id)


def main():
    with open(sys.argv[1]) as fh:
        cfg = yaml.safe_load(fh)
    acc = Accelerator(mixed_precision="bf16")
    tok = AutoTokenizer.from_pretrained(cfg["model"], padding_side="right")
    tok.pad_token_id = tok.eos_token_id
    model = AutoModelForCausalLM.from_pretrained(cfg["model"], dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **cfg["lora"]))

    def collate(rows):
        return tok(
            [r["headline"] + "\n" + r["lead"] + tok.eos_token for r in rows],
            padding=True,
            truncation=True,
            max_length=cfg["max_length"],
            return_tensors="pt",
        )

    ds = load_dataset("json", data_files=cfg["data"], split="train")
    loader = DataLoader(ds, batch_size=cfg["batch"], shuffle=True, collate_fn=collate)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=cfg["lr"], weight_decay=0.0)
    sched = get_cosine_schedule_with_warmup(opt, 30, cfg["epochs"] * len(loader))
    model, opt, loader, sched = acc.prepare(model, opt, loader, sched)
    for epoch in range(cfg["epochs"]):
        model.train()
        for i, batch in enumerate(loader):
            loss = lm_loss(model(**batch).logits, batch["input_ids"], tok)
            acc.backward(loss)
            acc.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
            if i % 25 == 0:
                acc.print(epoch, i, f"{loss.item():.4f}")
    if acc.is_main_process:
        acc.unwrap_model(model).save_pretrained(cfg["out"])
        tok.save_pretrained(cfg["out"])


if __name__ == "__main__":
    main()
