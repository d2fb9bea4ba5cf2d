import csv

import yaml
from accelerate import Accelerator
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq, get_scheduler, set_seed

from setup_model import add_lora, load_base, make_optimizer

cfg = yaml.safe_load(open("config.yaml"))
set_seed(cfg["seed"])
accelerator = Accelerator(gradient_accumulation_steps=cfg["grad_accum"], mixed_precision="bf16")

model, tokenizer = load_base(cfg["model"])
optimizer = make_optimizer(model, cfg["lr"], cfg["weight_decay"])
model = add_lora(model, cfg["lora"]["r"], cfg["lora"]["alpha"])


def encode(row):
    messages = [{"role": "user", "content": row["prompt"]}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    answer_ids = tokenizer(row["completion"] + "<|im_end|>\n", add_special_tokens=False)["input_ids"]
    ids = (prompt_ids + answer_ids)[: cfg["max_length"]]
    labels = ([-100] * len(prompt_ids) + answer_ids)[: cfg["max_length"]]
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


data = load_dataset("json", data_files=cfg["data"], split="train")
data = data.map(encode, remove_columns=data.column_names)
loader = DataLoader(data, batch_size=cfg["batch_size"], shuffle=True, collate_fn=DataCollatorForSeq2Seq(tokenizer, padding=True))

steps = cfg["epochs"] * len(loader) // cfg["grad_accum"]
scheduler = get_scheduler("cosine", optimizer, num_warmup_steps=5, num_training_steps=steps)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

log = csv.writer(open("metrics.csv", "w"))
log.writerow(["step", "loss", "grad_norm", "lr"])
model.train()
step, running, norm = 0, 0.0, None
for epoch in range(cfg["epochs"]):
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        running += loss.item() / cfg["grad_accum"]
        if accelerator.sync_gradients:
            step += 1
            log.writerow([step, round(running, 4), round(norm.item(), 4), scheduler.get_last_lr()[0]])
            running = 0.0

accelerator.unwrap_model(model).save_pretrained(cfg["out"])
