import argparse

import torch
from accelerate import Accelerator
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq


def validate(model, loader, accelerator):
    model.eval()
    losses = []
    for batch in loader:
        outputs = model(**batch)
        losses.append(accelerator.gather_for_metrics(outputs.loss.detach().repeat(batch["input_ids"].size(0))).cpu())
    model.train()
    return torch.cat(losses).mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-3B-Instruct")
    p.add_argument("--data", default="data/tokenized")
    p.add_argument("--out", default="out/lora")
    p.add_argument("--epochs", type=int, default=3)
    a = p.parse_args()

    acc = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=4)
    tok = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    ds = load_from_disk(a.data)
    collate = DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    train = DataLoader(ds["train"], batch_size=4, shuffle=True, collate_fn=collate)
    val = DataLoader(ds["validation"], batch_size=4, collate_fn=collate)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.0)
    model, opt, train, val = acc.prepare(model, opt, train, val)

    best = float("inf")
    for epoch in range(a.epochs):
        model.train()
        for i, batch in enumerate(train):
            with acc.accumulate(model):
                loss = model(**batch).loss
                acc.backward(loss)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                opt.zero_grad()
            if i % 50 == 0:
                acc.print(f"{epoch}/{i} {loss.item():.4f}")
        score = validate(model, val, acc)
        acc.print(f"epoch {epoch} val loss {score:.4f}")
        if score < best and acc.is_main_process:
            best = score
            acc.unwrap_model(model).save_pretrained(a.out)
            tok.save_pretrained(a.out)


if __name__ == "__main__":
    main()
