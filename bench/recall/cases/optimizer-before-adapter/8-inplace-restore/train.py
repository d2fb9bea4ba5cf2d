import argparse
import os

import torch
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq


def restore(model, optimizer, path):
    blob = torch.load(path, map_location="cpu")
    set_peft_model_state_dict(model, blob["adapter"])
    optimizer.load_state_dict(blob["optimizer"])
    return blob["epoch"] + 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="Qwen/Qwen2.5-1.5B-Instruct")
    p.add_argument("--out", default="out/lora")
    p.add_argument("--epochs", type=int, default=3)
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    ckpt = os.path.join(a.out, "last.pt")

    tok = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16)
    model = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    ).cuda()
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-4, weight_decay=0.0)
    first = restore(model, optimizer, ckpt) if os.path.exists(ckpt) else 0

    loader = DataLoader(
        load_from_disk("data/tokenized"),
        batch_size=8,
        shuffle=True,
        collate_fn=DataCollatorForSeq2Seq(tok, label_pad_token_id=-100),
    )
    for epoch in range(first, a.epochs):
        model.train()
        for i, batch in enumerate(loader):
            batch = {k: v.cuda() for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trainable, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if i % 50 == 0:
                print(epoch, i, round(loss.item(), 4))
        torch.save({"adapter": get_peft_model_state_dict(model), "optimizer": optimizer.state_dict(), "epoch": epoch}, ckpt)
    model.save_pretrained(a.out)
    tok.save_pretrained(a.out)


if __name__ == "__main__":
    main()
