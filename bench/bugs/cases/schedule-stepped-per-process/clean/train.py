import torch
from accelerate import Accelerator
from datasets import load_from_disk
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    get_cosine_schedule_with_warmup,
)

NAME = "Qwen/Qwen2.5-0.5B"
EPOCHS = 3
ACCUMULATION = 4

accelerator = Accelerator(gradient_accumulation_steps=ACCUMULATION, mixed_precision="bf16")
tokenizer = AutoTokenizer.from_pretrained(NAME)
model = AutoModelForCausalLM.from_pretrained(NAME)
loader = DataLoader(
    load_from_disk("encoded"),
    batch_size=4,
    shuffle=True,
    collate_fn=DataCollatorForSeq2Seq(tokenizer),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
steps = EPOCHS * len(loader) // ACCUMULATION * accelerator.num_processes
scheduler = get_cosine_schedule_with_warmup(
    optimizer, num_warmup_steps=100, num_training_steps=steps
)
scheduler = accelerator.prepare(scheduler)

model.train()
for epoch in range(EPOCHS):
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
