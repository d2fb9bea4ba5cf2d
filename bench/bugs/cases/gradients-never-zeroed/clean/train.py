import torch
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
ACCUMULATION = 8

tokenizer = AutoTokenizer.from_pretrained(NAME)
model = AutoModelForCausalLM.from_pretrained(NAME).cuda()
loader = DataLoader(
    load_from_disk("encoded"),
    batch_size=4,
    shuffle=True,
    collate_fn=DataCollatorForSeq2Seq(tokenizer),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
scheduler = get_cosine_schedule_with_warmup(
    optimizer, num_warmup_steps=50, num_training_steps=EPOCHS * len(loader) // ACCUMULATION
)

model.train()
for epoch in range(EPOCHS):
    for step, batch in enumerate(loader):
        loss = model(**batch.to("cuda")).loss / ACCUMULATION
        loss.backward()
        if (step + 1) % ACCUMULATION == 0:
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
