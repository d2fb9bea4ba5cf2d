import argparse

import torch
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

from meters import MeterGroup


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--model", default="Qwen/Qwen2.5-3B-Instruct")
    ap.add_argument("--out", default="out/lora")
    a = ap.parse_args()

    tok = AutoTokenizer.from_pretrained(a.model)
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16)
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, lora).cuda()
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.0)
    loader = DataLoader(
        load_from_disk("data/tokenized"), batch_size=4, shuffle=True, collate_fn=DataCollatorForSeq2Seq(tok)
    )

    meter = MeterGroup("loss", "grad_norm")
    for epoch in range(2):
        meter.reset()
        model.train()
        for i, batch in enumerate(loader):
            batch = {k: v.cuda() for k, v in batch.items()}
            with torch.autocast("cuda", dtype=torch.bfloat16):
                out = model(**batch)
            out.loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            meter.update("loss", out.loss, n=batch["input_ids"].size(0))
            meter.update("grad_norm", norm.item())
            if i % 50 == 0:
                print(f"{epoch} {i}/{len(loader)}  {meter.line()}", flush=True)
    model.save_pretrained(a.out)
    tok.save_pretrained(a.out)


if __name__ == "__main__":
    main()
