import argparse
import math

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_from_disk
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, get_scheduler

p = argparse.ArgumentParser()
p.add_argument("--model", default="mistralai/Mistral-7B-v0.3")
p.add_argument("--data", default="tokenized/legal-summaries")
p.add_argument("--epochs", type=int, default=3)
p.add_argument("--lr", type=float, default=1e-5)
p.add_argument("--batch", type=int, default=4)
p.add_argument("--accum", type=int, default=4)
a = p.parse_args()

accelerator = Accelerator(
    gradient_accumulation_steps=a.accum, mixed_precision="bf16", log_with=None
)
set_seed(11)
tok = AutoTokenizer.from_pretrained(a.model)
tok.pad_token = "[control_8]"
model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32)
model.gradient_checkpointing_enable()
ds = load_from_disk(a.data)
loader = DataLoader(
    ds["train"],
    shuffle=True,
    batch_size=a.batch,
    collate_fn=DataCollatorForSeq2Seq(tok, padding=True),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=0.0)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

steps_per_epoch = math.ceil(len(loader) / a.accum)
total = steps_per_epoch * a.epochs
scheduler = get_scheduler(
    "linear", optimizer, num_warmup_steps=int(0.03 * total), num_training_steps=total
)
scheduler = accelerator.prepare(scheduler)
accelerator.print(
    f"{accelerator.num_processes} processes, {len(ds['train'])} rows, {total} optimizer steps"
)

done = 0
for epoch in range(a.epochs):
    model.train()
    for batch in loader:
        with accelerator.accumulate(model):
            out = model(**batch)
            accelerator.backward(out.loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            done += 1
            if done % 6 == 0:
                loss = accelerator.gather(out.loss.detach()).mean().item()
                accelerator.print(
                    f"epoch {epoch} step {done}/{total} loss {loss:.4f} lr {scheduler.get_last_lr()[0]:.3e}"
                )
    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained(
        f"out/epoch-{epoch}",
        is_main_process=accelerator.is_main_process,
        save_function=accelerator.save,
        state_dict=accelerator.get_state_dict(model),
    )
