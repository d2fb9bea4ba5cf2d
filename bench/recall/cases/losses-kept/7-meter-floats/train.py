import torch
from accelerate import Accelerator
from datasets import load_from_disk
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq

from tracking import Average

NAME = "Qwen/Qwen2.5-1.5B-Instruct"


def main():
    acc = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=4)
    tok = AutoTokenizer.from_pretrained(NAME)
    model = AutoModelForCausalLM.from_pretrained(NAME, dtype=torch.bfloat16)
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, lora)
    loader = DataLoader(
        load_from_disk("data/tokenized"), batch_size=4, shuffle=True, collate_fn=DataCollatorForSeq2Seq(tok)
    )
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.0)
    model, opt, loader = acc.prepare(model, opt, loader)

    total_loss = Average()
    model.train()
    for epoch in range(2):
        for step, batch in enumerate(loader):
            with acc.accumulate(model):
                loss = model(**batch).loss
                acc.backward(loss)
                if acc.sync_gradients:
                    acc.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                opt.zero_grad()
            total_loss.add(loss)
            if step % 50 == 49:
                acc.print(f"{epoch}:{step} {total_loss.pop():.4f}")
    if acc.is_main_process:
        acc.unwrap_model(model).save_pretrained("out/lora")
        tok.save_pretrained("out/lora")


if __name__ == "__main__":
    main()
