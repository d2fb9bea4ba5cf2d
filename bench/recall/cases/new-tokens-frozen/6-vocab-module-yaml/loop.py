import sys

import torch
import yaml
from accelerate import Accelerator
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

from vocab import extend, read_terms


def main():
    with open(sys.argv[1]) as fh:
        cfg = yaml.safe_load(fh)
    acc = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=cfg["accumulate"])
    tok = AutoTokenizer.from_pretrained(cfg["model"])
    tok.pad_token = cfg["pad_token"]
    model = AutoModelForCausalLM.from_pretrained(cfg["model"], dtype=torch.bfloat16)
    acc.print("terms:", extend(model, tok, read_terms(cfg["terms"])))
    model = get_peft_model(model, LoraConfig(**cfg["peft"]))

    def encode(row):
        ids = tok(row["text"])["input_ids"][: cfg["max_length"] - 1] + [tok.eos_token_id]
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": list(ids)}

    ds = load_dataset("json", data_files=cfg["data"], split="train")
    ds = ds.map(encode, remove_columns=ds.column_names)
    loader = DataLoader(ds, batch_size=cfg["batch"], shuffle=True, collate_fn=DataCollatorForSeq2Seq(tok))
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=cfg["lr"], weight_decay=0.0)
    model, opt, loader = acc.prepare(model, opt, loader)

    model.train()
    for epoch in range(cfg["epochs"]):
        for i, batch in enumerate(loader):
            with acc.accumulate(model):
                loss = model(**batch).loss
                acc.backward(loss)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                opt.zero_grad()
            if i % 50 == 0:
                acc.print(epoch, i, f"{loss.item():.4f}")
    if acc.is_main_process:
        acc.unwrap_model(model).save_pretrained(cfg["out"])
        tok.save_pretrained(cfg["out"])


if __name__ == "__main__":
    main()
