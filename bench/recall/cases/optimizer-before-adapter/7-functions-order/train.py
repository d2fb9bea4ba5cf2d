import argparse

import torch
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq


def build_optimizer(model, lr):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr, weight_decay=0.0)


def attach_lora(model, r):
    config = LoraConfig(r=r, lora_alpha=2 * r, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(model, config)


def load_base(name):
    return AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-1.5B-Instruct")
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--out", default="out/lora")
    a = p.parse_args()

    tok = AutoTokenizer.from_pretrained(a.model)
    model = attach_lora(load_base(a.model), r=16).cuda()
    optimizer = build_optimizer(model, a.lr)
    loader = DataLoader(
        load_from_disk("data/tokenized"),
        batch_size=8,
        shuffle=True,
        collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
    )
    model.train()
    for epoch in range(2):
        for i, batch in enumerate(loader):
            batch = {k: v.cuda() for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if i % 50 == 0:
                print(epoch, i, round(loss.item(), 4))
    model.save_pretrained(a.out)
    tok.save_pretrained(a.out)


if __name__ == "__main__":
    main()
