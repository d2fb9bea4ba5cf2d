from functools import partial

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from rows import SqlRows, collate

BASE = "meta-llama/Llama-3.2-1B"
EPOCHS = 3


def main():
    set_seed(21)
    acc = Accelerator(mixed_precision="bf16")
    tok = AutoTokenizer.from_pretrained(BASE)
    tok.pad_token = "<|finetune_right_pad_id|>"
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05,
                                             target_modules="all-linear", task_type="CAUSAL_LM"))
    loader = DataLoader(SqlRows("sql_train.jsonl", tok), batch_size=8, shuffle=True,
                        collate_fn=partial(collate, pad_id=tok.pad_token_id))
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)
    total = len(loader) * EPOCHS
    sched = get_cosine_schedule_with_warmup(opt, int(0.03 * total), total)
    model, opt, loader = acc.prepare(model, opt, loader)
    model.train()
    for epoch in range(EPOCHS):
        for step, batch in enumerate(loader):
            loss = model(**batch).loss
            acc.backward(loss)
            acc.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
            if step % 50 == 0:
                acc.print(epoch, step, round(loss.item(), 4))
    acc.unwrap_model(model).save_pretrained("runs/sql/adapter")
    tok.save_pretrained("runs/sql/adapter")


if __name__ == "__main__":
    main()
