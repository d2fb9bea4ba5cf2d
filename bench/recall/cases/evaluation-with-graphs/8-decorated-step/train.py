import math

import torch
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

from steps import eval_step, train_step

NAME = "Qwen/Qwen2.5-1.5B-Instruct"


def evaluate(model, loader):
    model.eval()
    nll, n = 0.0, 0
    for batch in loader:
        a, b = eval_step(model, {k: v.cuda() for k, v in batch.items()})
        nll, n = nll + a, n + b
    return math.exp(nll / n)


def main():
    tok = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, lora).cuda()
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4, weight_decay=0.0)
    ds = load_from_disk("data/tokenized")
    collate = DataCollatorForSeq2Seq(tok, label_pad_token_id=-100)
    train = DataLoader(ds["train"], batch_size=8, shuffle=True, collate_fn=collate)
    val = DataLoader(ds["validation"], batch_size=8, collate_fn=collate)
    for epoch in range(2):
        model.train()
        for i, batch in enumerate(train):
            loss = train_step(model, {k: v.cuda() for k, v in batch.items()})
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad(set_to_none=True)
            if i % 50 == 0:
                print(epoch, i, f"{loss.item():.4f}")
        print("perplexity", evaluate(model, val))
    model.save_pretrained("out/lora")
    tok.save_pretrained("out/lora")


if __name__ == "__main__":
    main()
