import argparse

import torch
from accelerate import Accelerator
from datasets import load_dataset
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_scheduler

cli = argparse.ArgumentParser()
cli.add_argument("--base", default="google/gemma-3-1b-it")
cli.add_argument("--rows", default="summaries.jsonl")
cli.add_argument("--epochs", type=int, default=2)
opts = cli.parse_args()

accelerator = Accelerator(mixed_precision="bf16")
tok = AutoTokenizer.from_pretrained(opts.base)
model = AutoModelForCausalLM.from_pretrained(opts.base, attn_implementation="eager")


def to_features(example):
    msgs = [{"role": "user", "content": "Summarise:\n" + example["article"]}]
    prompt = tok.apply_chat_template(msgs, add_generation_prompt=True, return_dict=False)
    target = tok(example["summary"] + "<end_of_turn>\n", add_special_tokens=False)["input_ids"]
    return {"input_ids": prompt + target, "labels": [-100] * len(prompt) + target}


rows = load_dataset("json", data_files=opts.rows, split="train")
rows = rows.map(to_features, remove_columns=rows.column_names)
loader = DataLoader(rows, batch_size=4, shuffle=True, collate_fn=DataCollatorForSeq2Seq(tok))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
scheduler = get_scheduler(
    "linear", optimizer, num_warmup_steps=20, num_training_steps=opts.epochs * len(loader)
)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

model.train()
for _ in range(opts.epochs):
    bar = tqdm(loader, disable=not accelerator.is_main_process)
    for batch in bar:
        out = model(**batch)
        accelerator.backward(out.loss)
        optimizer.zero_grad()
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        bar.set_postfix(loss=f"{out.loss.item():.3f}")
accelerator.unwrap_model(model).save_pretrained("gemma3-summaries")
