import json
import random

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, get_linear_schedule_with_warmup

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
EPOCHS = 3
BATCH = 16
LR = 2e-4


def read(path):
    with open(path, encoding="utf-8") as fh:
        return [json.loads(line) for line in fh]


def main():
    random.seed(0)
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(MODEL, padding_side="right")
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16)
    config = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, config).cuda()
    model.print_trainable_parameters()

    def collate(rows):
        texts = []
        for r in rows:
            chat = [{"role": "user", "content": r["word"]}, {"role": "assistant", "content": r["definition"]}]
            texts.append(tokenizer.apply_chat_template(chat, tokenize=False))
        return tokenizer(
            texts, padding=True, truncation=True, max_length=384, add_special_tokens=False, return_tensors="pt"
        )

    loader = DataLoader(read("data/glossary.jsonl"), batch_size=BATCH, shuffle=True, collate_fn=collate)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, weight_decay=0.0)
    scheduler = get_linear_schedule_with_warmup(optimizer, 20, EPOCHS * len(loader))

    for epoch in range(EPOCHS):
        model.train()
        running = 0.0
        for step, batch in enumerate(loader):
            batch = batch.to("cuda")
            with torch.autocast("cuda", dtype=torch.bfloat16):
                out = model(
                    input_ids=batch["input_ids"],
                    attention_mask=batch["attention_mask"],
                    labels=batch["input_ids"],
                )
            out.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            running += out.loss.item()
        print(f"epoch {epoch} loss {running / len(loader):.4f}")

    model.save_pretrained("out/glossary")
    tokenizer.save_pretrained("out/glossary")


if __name__ == "__main__":
    main()
