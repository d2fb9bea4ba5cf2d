import argparse

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from batching import make_loader
from tokenization import get_tokenizer


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="meta-llama/Llama-3.1-8B")
    p.add_argument("--data", default="data/qa.jsonl")
    p.add_argument("--out", default="out/qa")
    a = p.parse_args()
    tok = get_tokenizer(a.model)
    model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.bfloat16)
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, lora).cuda()
    loader = make_loader(a.data, tok, batch_size=8)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.0)
    model.train()
    for epoch in range(2):
        for i, batch in enumerate(loader):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(**batch.to("cuda")).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            if i % 25 == 0:
                print(f"{epoch} {i}/{len(loader)} {loss.item():.4f}", flush=True)
    model.save_pretrained(a.out)
    tok.save_pretrained(a.out)


if __name__ == "__main__":
    main()
